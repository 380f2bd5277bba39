// Products on f32 activations, and attention.
//
// Idea: four vectors of four lanes are the sixteen lanes of the definition; several rows at a time
// hide the latency of the additions.
// Exact: bit for bit the order of kernel_table.h (separate multiply and add, no fused ones).
// Preconditions: none on alignment or sizes.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

#include "kernels/arm/reduce.inc"

/// Four elements of a packed float row as f32.
template <FloatFormat F>
inline float32x4_t load4(const uint8_t* row, size_t i) {
  if constexpr (F == kFloatF32) {
    return vreinterpretq_f32_u8(vld1q_u8(row + 4 * i));
  } else {
    const uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(row + 2 * i));
    if constexpr (F == kFloatF16)
      return vcvt_f32_f16(vreinterpret_f16_u16(bits));
    else
      return vreinterpretq_f32_u32(vshll_n_u16(bits, 16));
  }
}

/// The n < 4 elements from i on, zeros after them.
template <FloatFormat F>
inline float32x4_t load_rest(const uint8_t* row, size_t i, size_t n) {
  constexpr size_t kBytes = F == kFloatF32 ? 4 : 2;
  uint8_t bytes[16] = {};
  for (size_t b = 0; b < n * kBytes; ++b)
    bytes[b] = row[i * kBytes + b];
  return load4<F>(bytes, 0);
}

/// The sixteen lanes of a dot product.
struct Lanes16 {
  float32x4_t a = vdupq_n_f32(0.0F), b = a, c = a, d = a;
  float total() const { return tree(vaddq_f32(a, c), vaddq_f32(b, d)); }
};

/// Elements [i, i + 16) of one row.
template <FloatFormat F>
inline void add16(Lanes16& l, const uint8_t* w, const float* x, size_t i) {
  l.a = add_product(l.a, load4<F>(w, i), vld1q_f32(x + i));
  l.b = add_product(l.b, load4<F>(w, i + 4), vld1q_f32(x + i + 4));
  l.c = add_product(l.c, load4<F>(w, i + 8), vld1q_f32(x + i + 8));
  l.d = add_product(l.d, load4<F>(w, i + 12), vld1q_f32(x + i + 12));
}

/// The n < 16 elements from i on.
template <FloatFormat F>
inline void add_rest(Lanes16& l, const uint8_t* w, const float* x, size_t i, size_t n) {
  const auto* xb = reinterpret_cast<const uint8_t*>(x);
  const auto add = [&](float32x4_t& lane) {
    const size_t count = n < 4 ? n : 4;
    if (count == 4)
      lane = add_product(lane, load4<F>(w, i), vld1q_f32(x + i));
    else if (count > 0)
      lane = add_product(lane, load_rest<F>(w, i, count), load_rest<kFloatF32>(xb, i, count));
    i += count;
    n -= count;
  };
  add(l.a);
  add(l.b);
  add(l.c);
  add(l.d);
}

template <FloatFormat F>
inline float dot(const uint8_t* w, const float* x, size_t k) {
  Lanes16 l;
  size_t i = 0;
  for (; i + 16 <= k; i += 16)
    add16<F>(l, w, x, i);
  add_rest<F>(l, w, x, i, k - i);
  return l.total();
}

template <FloatFormat F>
void float_gemv(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, const float* x,
                float* y) {
  for (size_t r = 0; r < n_rows; ++r)
    y[r] = dot<F>(w + r * row_bytes, x, k);
}

template <FloatFormat F>
void to_f32(const uint8_t* src, size_t k, float* dst) {
  size_t i = 0;
  for (; i + 4 <= k; i += 4)
    vst1q_f32(dst + i, load4<F>(src, i));
  if (i == k) return;
  float rest[4];
  vst1q_f32(rest, load_rest<F>(src, i, k - i));
  for (size_t j = 0; i + j < k; ++j)
    dst[i + j] = rest[j];
}

/// Dot products of x with n rows, two rows at a time; store(r, value) receives them.
template <typename Store>
inline void dot_rows(const float* w, size_t w_stride, size_t n, size_t k, const float* x,
                     Store store) {
  size_t r = 0;
  for (; r + 2 <= n; r += 2) {
    const auto* w0 = reinterpret_cast<const uint8_t*>(w + r * w_stride);
    const auto* w1 = reinterpret_cast<const uint8_t*>(w + (r + 1) * w_stride);
    Lanes16 l0, l1;
    size_t i = 0;
    for (; i + 16 <= k; i += 16) {
      add16<kFloatF32>(l0, w0, x, i);
      add16<kFloatF32>(l1, w1, x, i);
    }
    add_rest<kFloatF32>(l0, w0, x, i, k - i);
    add_rest<kFloatF32>(l1, w1, x, i, k - i);
    store(r, l0.total());
    store(r + 1, l1.total());
  }
  if (r < n) store(r, dot<kFloatF32>(reinterpret_cast<const uint8_t*>(w + r * w_stride), x, k));
}

void float_tile(const float* w, size_t w_stride, size_t n_rows, size_t k, const float* x,
                size_t x_stride, size_t n_x, float* y, size_t y_stride) {
  for (size_t m = 0; m < n_x; ++m) {
    float* out = y + m * y_stride;
    dot_rows(w, w_stride, n_rows, k, x + m * x_stride,
             [out](size_t r, float value) { out[r] = value; });
  }
}

void attention_scores(const float* q, const float* k, size_t k_stride, size_t n, size_t head_dim,
                      float factor, float* scores) {
  dot_rows(k, k_stride, n, head_dim, q,
           [scores, factor](size_t r, float value) { scores[r] = value * factor; });
}

/// Columns [d, d + 4 * N): N accumulators, keys in ascending order.
template <int N>
inline void value_columns(const float* p, const float* v, size_t v_stride, size_t n, float* out) {
  float32x4_t acc[N];
#pragma GCC unroll 16
  for (int j = 0; j < N; ++j)
    acc[j] = vdupq_n_f32(0.0F);
  for (size_t i = 0; i < n; ++i, v += v_stride) {
    const float32x4_t weight = vdupq_n_f32(p[i]);
#pragma GCC unroll 16
    for (int j = 0; j < N; ++j)
      acc[j] = add_product(acc[j], weight, vld1q_f32(v + 4 * j));
  }
#pragma GCC unroll 16
  for (int j = 0; j < N; ++j)
    vst1q_f32(out + 4 * j, acc[j]);
}

void attention_values(const float* p, const float* v, size_t v_stride, size_t n, size_t head_dim,
                      float* out) {
  size_t d = 0;
  for (; d + 64 <= head_dim; d += 64)
    value_columns<16>(p, v + d, v_stride, n, out + d);
  for (; d + 4 <= head_dim; d += 4)
    value_columns<1>(p, v + d, v_stride, n, out + d);
  for (; d < head_dim; ++d) {
    float sum = 0.0F;
    for (size_t i = 0; i < n; ++i)
      sum = sum + p[i] * v[i * v_stride + d];
    out[d] = sum;
  }
}

}  // namespace

void set_float_products(KernelTable* table) {
  table->to_f32[kFloatF32] = to_f32<kFloatF32>;
  table->to_f32[kFloatF16] = to_f32<kFloatF16>;
  table->to_f32[kFloatBF16] = to_f32<kFloatBF16>;
  table->float_gemv[kFloatF32] = float_gemv<kFloatF32>;
  table->float_gemv[kFloatF16] = float_gemv<kFloatF16>;
  table->float_gemv[kFloatBF16] = float_gemv<kFloatBF16>;
  table->float_tile = float_tile;
  table->attention_scores = attention_scores;
  table->attention_values = attention_values;
}

}  // namespace ts::neon_dotprod
