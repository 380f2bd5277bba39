// Reference products: the definition in kernel_table.h written down once, group by group.
// Everything here is normative; nothing is tuned beyond what the compiler does.
#include <bit>

#include "base/half.h"
#include "kernels/ref/ref_kernels.h"

namespace ts::ref {
namespace {

float tree(const float* l) {
  return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

void int_tile(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act, size_t n_act,
              float* y, size_t y_stride) {
  const size_t group = format->group;
  const size_t n_groups = tile->k / group;
  const size_t n_mins = format->min_group ? tile->k / format->min_group : 0;
  for (size_t m = 0; m < n_act; ++m) {
    const float* a_scale = group == 16 ? act[m].scale16 : act[m].scale;
    const float* fsum = format->min_group == 16 ? act[m].fsum16 : act[m].fsum;
    for (size_t r = 0; r < tile->n_rows; ++r) {
      const uint8_t* codes = tile->codes + r * tile->code_stride;
      const float* scales = tile->scales + r * tile->scale_stride;
      float acc[8] = {0, 0, 0, 0, 0, 0, 0, 0};
      for (size_t g = 0; g < n_groups; ++g) {
        int32_t sum = 0;
        if (format->max_code == 255) {
          for (size_t i = g * group; i < (g + 1) * group; ++i)
            sum += static_cast<int8_t>(codes[i]) * act[m].q[i];
        } else {
          for (size_t i = g * group; i < (g + 1) * group; ++i)
            sum += (codes[i] - format->offset) * act[m].q[i];
        }
        acc[g % 8] = acc[g % 8] + static_cast<float>(sum) * (scales[g] * a_scale[g]);
      }
      float result = tree(acc);
      if (n_mins > 0) {
        const float* mins = tile->mins + r * tile->min_stride;
        float low[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        for (size_t j = 0; j < n_mins; ++j)
          low[j % 8] = low[j % 8] + mins[j] * fsum[j];
        result = result + tree(low);
      }
      y[m * y_stride + r] = result;
    }
  }
}

float load(const uint8_t* p, FloatFormat format) {
  if (format == kFloatF32) {
    uint32_t bits = 0;
    for (int i = 3; i >= 0; --i)
      bits = bits << 8 | p[i];
    return std::bit_cast<float>(bits);
  }
  const uint16_t bits = static_cast<uint16_t>(p[0] | (p[1] << 8));
  return format == kFloatF16 ? half_to_float(bits) : bf16_to_float(bits);
}

template <FloatFormat F>
void to_f32(const uint8_t* src, size_t k, float* dst) {
  for (size_t i = 0; i < k; ++i)
    dst[i] = load(src + i * (F == kFloatF32 ? 4 : 2), F);
}

/// `w` yields element i as f32.
template <typename W>
float float_dot(W w, const float* x, size_t k) {
  float acc[16] = {};
  size_t i = 0;
  for (; i + 16 <= k; i += 16) {
    for (size_t j = 0; j < 16; ++j)
      acc[j] = acc[j] + w(i + j) * x[i + j];
  }
  for (size_t j = 0; i + j < k; ++j)
    acc[j] = acc[j] + w(i + j) * x[i + j];
  float l[8];
  for (size_t j = 0; j < 8; ++j)
    l[j] = acc[j] + acc[j + 8];
  return tree(l);
}

template <FloatFormat F>
void float_gemv(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, const float* x,
                float* y) {
  for (size_t r = 0; r < n_rows; ++r) {
    const uint8_t* row = w + r * row_bytes;
    y[r] = float_dot([row](size_t i) { return load(row + i * (F == kFloatF32 ? 4 : 2), F); }, x, k);
  }
}

void float_tile(const float* w, size_t w_stride, size_t n_rows, size_t k, const float* x,
                size_t x_stride, size_t n_x, float* y, size_t y_stride) {
  for (size_t m = 0; m < n_x; ++m) {
    for (size_t r = 0; r < n_rows; ++r) {
      const float* row = w + r * w_stride;
      y[m * y_stride + r] = float_dot([row](size_t i) { return row[i]; }, x + m * x_stride, k);
    }
  }
}

void attention_scores(const float* q, const float* k, size_t k_stride, size_t n, size_t head_dim,
                      float factor, float* scores) {
  for (size_t i = 0; i < n; ++i) {
    const float* row = k + i * k_stride;
    scores[i] = float_dot([row](size_t d) { return row[d]; }, q, head_dim) * factor;
  }
}

void attention_values(const float* p, const float* v, size_t v_stride, size_t n, size_t head_dim,
                      float* out) {
  for (size_t d = 0; d < head_dim; ++d)
    out[d] = 0.0F;
  for (size_t i = 0; i < n; ++i) {
    for (size_t d = 0; d < head_dim; ++d)
      out[d] = out[d] + p[i] * v[i * v_stride + d];
  }
}

void f32_to_f16(const float* src, size_t n, uint16_t* dst) {
  for (size_t i = 0; i < n; ++i)
    dst[i] = float_to_half(src[i]);
}

}  // namespace

void set_products(KernelTable& table) {
  table.int_tile = int_tile;
  table.to_f32[kFloatF32] = to_f32<kFloatF32>;
  table.to_f32[kFloatF16] = to_f32<kFloatF16>;
  table.to_f32[kFloatBF16] = to_f32<kFloatBF16>;
  table.float_gemv[kFloatF32] = float_gemv<kFloatF32>;
  table.float_gemv[kFloatF16] = float_gemv<kFloatF16>;
  table.float_gemv[kFloatBF16] = float_gemv<kFloatBF16>;
  table.float_tile = float_tile;
  table.attention_scores = attention_scores;
  table.attention_values = attention_values;
  table.f32_to_f16 = f32_to_f16;
}

}  // namespace ts::ref
