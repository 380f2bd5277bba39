// Element-wise operations by hand where compilers do not vectorise the reference's loops: the
// quantizer, what has an exponential in it, half precision. Bit-exact with the reference for every
// input. Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

#include "kernels/elementwise.inc"

/// exp_f32, operation by operation. Comparisons with a NaN are false, so it stays.
inline float32x4_t exp4(float32x4_t x) {
  const auto constant = [](float v) { return vdupq_n_f32(v); };
  const auto mul_add = [](float32x4_t a, float32x4_t b, float32x4_t c) {
    return vaddq_f32(vmulq_f32(a, b), c);
  };
  float32x4_t c = vbslq_f32(vcltq_f32(x, constant(-104.0F)), constant(-104.0F), x);
  c = vbslq_f32(vcgtq_f32(c, constant(89.0F)), constant(89.0F), c);
  const float32x4_t shifted = mul_add(c, constant(1.44269504F), constant(12582912.0F));
  const float32x4_t n = vsubq_f32(shifted, constant(12582912.0F));
  float32x4_t r = vsubq_f32(c, vmulq_f32(n, constant(0.693359375F)));
  r = vsubq_f32(r, vmulq_f32(n, constant(-2.12194440e-4F)));
  float32x4_t p = constant(1.98412698e-4F);
  p = mul_add(p, r, constant(1.38888889e-3F));
  p = mul_add(p, r, constant(8.33333333e-3F));
  p = mul_add(p, r, constant(4.16666667e-2F));
  p = mul_add(p, r, constant(1.66666667e-1F));
  p = mul_add(p, r, constant(0.5F));
  const float32x4_t e = vaddq_f32(mul_add(p, vmulq_f32(r, r), r), constant(1.0F));
  const int32x4_t i = vsubq_s32(vreinterpretq_s32_f32(shifted), vdupq_n_s32(0x4B400000));
  const int32x4_t half = vshrq_n_s32(i, 1);
  const auto power = [](int32x4_t exponent) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(exponent, vdupq_n_s32(127)), 23));
  };
  return vmulq_f32(vmulq_f32(e, power(half)), power(vsubq_s32(i, half)));
}

/// out = fn(a, b) four at a time; the rest through zero-padded copies.
template <typename F>
inline void map4(const float* a, const float* b, size_t n, float* out, F fn) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1q_f32(out + i, fn(vld1q_f32(a + i), vld1q_f32(b + i)));
  if (i == n) return;
  float x[4] = {}, y[4] = {};
  for (size_t j = 0; i + j < n; ++j) {
    x[j] = a[i + j];
    y[j] = b[i + j];
  }
  vst1q_f32(x, fn(vld1q_f32(x), vld1q_f32(y)));
  for (size_t j = 0; i + j < n; ++j)
    out[i + j] = x[j];
}

inline float32x4_t one_and(float32x4_t x) {
  return vaddq_f32(vdupq_n_f32(1.0F), x);
}

void silu_gate4(const float* gate, const float* up, size_t n, float* out) {
  map4(gate, up, n, out, [](float32x4_t g, float32x4_t u) {
    return vmulq_f32(vdivq_f32(g, one_and(exp4(vnegq_f32(g)))), u);
  });
}

void sigmoid_gate4(const float* gate, const float* x, size_t n, float* out) {
  map4(gate, x, n, out,
       [](float32x4_t g, float32x4_t v) { return vdivq_f32(v, one_and(exp4(vnegq_f32(g)))); });
}

void gelu_gate4(const float* gate, const float* up, size_t n, float* out) {
  map4(gate, up, n, out, [](float32x4_t g, float32x4_t u) {
    const float32x4_t cubic = vmulq_f32(vdupq_n_f32(0.044715F), vmulq_f32(g, g));
    const float32x4_t u2 = vmulq_f32(vmulq_f32(vdupq_n_f32(1.59576912F), g), one_and(cubic));
    return vmulq_f32(vdivq_f32(g, one_and(exp4(vnegq_f32(u2)))), u);
  });
}

void softmax_terms4(float* scores, size_t n, float* max, float* sum) {
  float32x4_t ma = vdupq_n_f32(scores[0]), mb = ma;
  const auto larger = [](float32x4_t s, float32x4_t m) { return vbslq_f32(vcgtq_f32(s, m), s, m); };
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    ma = larger(vld1q_f32(scores + i), ma);
    mb = larger(vld1q_f32(scores + i + 4), mb);
  }
  float lanes[8];
  const auto store_lanes = [&lanes](float32x4_t a, float32x4_t b) {
    vst1q_f32(lanes, a);
    vst1q_f32(lanes + 4, b);
  };
  store_lanes(ma, mb);
  for (; i < n; ++i)
    lanes[0] = scores[i] > lanes[0] ? scores[i] : lanes[0];
  float top = lanes[0];
  for (size_t j = 1; j < 8; ++j)
    top = lanes[j] > top ? lanes[j] : top;
  map4(scores, scores, n, scores,
       [top](float32x4_t score, float32x4_t) { return exp4(vsubq_f32(score, vdupq_n_f32(top))); });
  float32x4_t la = vdupq_n_f32(0.0F), lb = la;
  for (i = 0; i + 8 <= n; i += 8) {
    la = vaddq_f32(la, vld1q_f32(scores + i));
    lb = vaddq_f32(lb, vld1q_f32(scores + i + 4));
  }
  store_lanes(la, lb);
  for (size_t j = 0; i + j < n; ++j)
    lanes[j] = lanes[j] + scores[i + j];
  *max = top;
  *sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// Whole groups of a row by 16 elements; the short last group by the plain code.
void quantize_row(const float* x, size_t k, size_t group, const ActRowOut* out) {
  const size_t whole = k / group;
  for (size_t g = 0; g < whole; ++g) {
    const float* src = x + g * group;
    uint32x4_t top = vdupq_n_u32(0);
    for (size_t i = 0; i < group; i += 4)
      top = vmaxq_u32(
          top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(src + i)), vdupq_n_u32(0x7FFFFFFFu)));
    const uint32_t bits = vmaxvq_u32(top);
    const float max = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7F800000u;
    const bool zero = max < 1e-30F;
    const float inverse = finite && !zero ? 127.0F / max : 0.0F;
    const float nan = __builtin_bit_cast(float, 0x7FC00000u);
    const float scale = !finite ? nan : zero ? 0.0F : max / 127.0F;
    const float32x4_t factor = vdupq_n_f32(inverse);
    const int32x4_t keep = vdupq_n_s32(finite ? -1 : 0);
    int32_t sum = 0;
    for (size_t i = 0; i < group; i += 16) {
      const auto codes = [&](size_t at) {  // rounded to nearest even
        const int32x4_t q = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(src + i + at), factor));
        return vmovn_s32(vandq_s32(q, keep));
      };
      const int16x8_t low = vcombine_s16(codes(0), codes(4));
      const int16x8_t high = vcombine_s16(codes(8), codes(12));
      const int32_t part = vaddlvq_s16(vaddq_s16(low, high));
      vst1q_s8(out->q + g * group + i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
      sum += part;
      if (out->scale16) {
        const size_t index = (g * group + i) / 16;
        out->scale16[index] = scale;
        out->isum16[index] = part;
        out->fsum16[index] = scale * static_cast<float>(part);
      }
    }
    out->scale[g] = scale;
    out->isum[g] = sum;
    out->fsum[g] = scale * static_cast<float>(sum);
  }
  quantize_groups(x, k, group, whole, out);
}

void interleave4_16(const int8_t* q, size_t k, int8_t* q4) {
  for (size_t run = 0; run + 128 <= k; run += 128) {
    for (size_t half = 0; half < 2; ++half) {
      const int8x16x4_t v = vld4q_s8(q + run + 64 * half);
      for (size_t p = 0; p < 4; ++p)
        vst1q_s8(q4 + run + 32 * p + 16 * half, v.val[p]);
    }
  }
}

/// The conversion rounds like the reference; NaNs stay quiet NaNs.
void f32_to_f16(const float* src, size_t n, uint16_t* dst) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4)
    vst1_u16(dst + i, vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(src + i))));
  for (; i < n; ++i)
    dst[i] = vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(src[i]))), 0);
}

}  // namespace

void set_elementwise(KernelTable* table) {
  table->quantize_row = quantize_row;
  table->interleave4 = interleave4_16;
  table->f32_to_f16 = f32_to_f16;
  table->rms_norm = rms_norm;
  table->add = add;
  table->scale = scale;
  table->silu_gate = silu_gate4;
  table->gelu_gate = gelu_gate4;
  table->sigmoid_gate = sigmoid_gate4;
  table->softcap = softcap;
  table->rope_half_split = rope_half_split;
  table->rope_interleaved = rope_interleaved;
  table->dequantize32 = dequantize32;
  table->softmax_terms = softmax_terms4;
  table->exp = exp_one;
  table->scaled_add = scaled_add;
}

}  // namespace ts::neon_dotprod
