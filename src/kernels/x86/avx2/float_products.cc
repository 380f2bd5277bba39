// Products on f32 activations, and attention.
//
// Idea: two accumulators of eight lanes are the sixteen lanes of the definition; several rows at a
// time hide the latency of the additions, and eight rows end in one transpose-and-add tree.
// Exact: bit for bit the order of kernel_table.h (separate multiply and add, no FMA).
// Preconditions: none on alignment or sizes.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, `kernel_cycles_bench avx2 1536`, data in cache),
// cycles per 32 elements: f32 rows 5.7, f16 rows 3.6 to 4.9, tile 2.7 to 3.0, attention scores 3.0
// to 3.4, values 1.5 to 2.1.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/reduce.inc"

/// Eight elements of a packed float row as f32.
template <FloatFormat F>
inline __m256 load8(const uint8_t* row, size_t i) {
  if constexpr (F == kFloatF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(row) + i);
  } else {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + 2 * i));
    if constexpr (F == kFloatF16)
      return _mm256_cvtph_ps(bits);
    else
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
}

/// The last n < 8 elements, zeros after them.
template <FloatFormat F>
inline __m256 load_rest(const uint8_t* row, size_t i, size_t n) {
  constexpr size_t kBytes = F == kFloatF32 ? 4 : 2;
  alignas(32) uint8_t bytes[32] = {};
  for (size_t b = 0; b < n * kBytes; ++b)
    bytes[b] = row[i * kBytes + b];
  return load8<F>(bytes, 0);
}

/// The eight lanes l of one dot product.
template <FloatFormat F>
inline __m256 dot_lanes(const uint8_t* w, const float* x, size_t k) {
  __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
  size_t i = 0;
  for (; i + 16 <= k; i += 16) {
    a = _mm256_add_ps(a, _mm256_mul_ps(load8<F>(w, i), _mm256_loadu_ps(x + i)));
    b = _mm256_add_ps(b, _mm256_mul_ps(load8<F>(w, i + 8), _mm256_loadu_ps(x + i + 8)));
  }
  const auto* xb = reinterpret_cast<const uint8_t*>(x);
  if (i + 8 <= k) {
    a = _mm256_add_ps(a, _mm256_mul_ps(load8<F>(w, i), _mm256_loadu_ps(x + i)));
    i += 8;
    if (i < k)
      b = _mm256_add_ps(
          b, _mm256_mul_ps(load_rest<F>(w, i, k - i), load_rest<kFloatF32>(xb, i, k - i)));
  } else if (i < k) {
    a = _mm256_add_ps(a,
                      _mm256_mul_ps(load_rest<F>(w, i, k - i), load_rest<kFloatF32>(xb, i, k - i)));
  }
  return _mm256_add_ps(a, b);
}

template <FloatFormat F>
void float_gemv(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, const float* x,
                float* y) {
  for (size_t r = 0; r < n_rows; ++r)
    y[r] = tree(dot_lanes<F>(w + r * row_bytes, x, k));
}

template <FloatFormat F>
void to_f32(const uint8_t* src, size_t k, float* dst) {
  size_t i = 0;
  for (; i + 8 <= k; i += 8)
    _mm256_storeu_ps(dst + i, load8<F>(src, i));
  if (i < k) {
    alignas(32) float rest[8];
    _mm256_store_ps(rest, load_rest<F>(src, i, k - i));
    for (size_t j = 0; i + j < k; ++j)
      dst[i + j] = rest[j];
  }
}

/// y[r] = factor-free dot products of x with n rows, whole sixteens of k four rows at a time.
/// `store(r, value)` receives them.
template <typename Store>
inline void dot_rows(const float* w, size_t w_stride, size_t n, size_t k, const float* x,
                     Store store) {
  size_t r = 0;
  if (k % 16 == 0) {
    for (; r + 4 <= n; r += 4) {
      const float* w0 = w + r * w_stride;
      const float* w1 = w0 + w_stride;
      const float* w2 = w1 + w_stride;
      const float* w3 = w2 + w_stride;
      __m256 a0 = _mm256_setzero_ps(), b0 = a0, a1 = a0, b1 = a0, a2 = a0, b2 = a0, a3 = a0,
             b3 = a0;
      for (size_t i = 0; i < k; i += 16) {
        const __m256 xa = _mm256_loadu_ps(x + i), xb = _mm256_loadu_ps(x + i + 8);
        a0 = _mm256_add_ps(a0, _mm256_mul_ps(_mm256_loadu_ps(w0 + i), xa));
        b0 = _mm256_add_ps(b0, _mm256_mul_ps(_mm256_loadu_ps(w0 + i + 8), xb));
        a1 = _mm256_add_ps(a1, _mm256_mul_ps(_mm256_loadu_ps(w1 + i), xa));
        b1 = _mm256_add_ps(b1, _mm256_mul_ps(_mm256_loadu_ps(w1 + i + 8), xb));
        a2 = _mm256_add_ps(a2, _mm256_mul_ps(_mm256_loadu_ps(w2 + i), xa));
        b2 = _mm256_add_ps(b2, _mm256_mul_ps(_mm256_loadu_ps(w2 + i + 8), xb));
        a3 = _mm256_add_ps(a3, _mm256_mul_ps(_mm256_loadu_ps(w3 + i), xa));
        b3 = _mm256_add_ps(b3, _mm256_mul_ps(_mm256_loadu_ps(w3 + i + 8), xb));
      }
      store(r, tree(_mm256_add_ps(a0, b0)));
      store(r + 1, tree(_mm256_add_ps(a1, b1)));
      store(r + 2, tree(_mm256_add_ps(a2, b2)));
      store(r + 3, tree(_mm256_add_ps(a3, b3)));
    }
  }
  for (; r < n; ++r)
    store(r, tree(dot_lanes<kFloatF32>(reinterpret_cast<const uint8_t*>(w + r * w_stride), x, k)));
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

/// Columns [d, d + 8 * N): N accumulators, keys in ascending order.
template <int N>
inline void value_columns(const float* p, const float* v, size_t v_stride, size_t n, float* out) {
  __m256 acc[N];
  for (int j = 0; j < N; ++j)
    acc[j] = _mm256_setzero_ps();
  for (size_t i = 0; i < n; ++i, v += v_stride) {
    const __m256 weight = _mm256_broadcast_ss(p + i);
    for (int j = 0; j < N; ++j)
      acc[j] = _mm256_add_ps(acc[j], _mm256_mul_ps(weight, _mm256_loadu_ps(v + 8 * j)));
  }
  for (int j = 0; j < N; ++j)
    _mm256_storeu_ps(out + 8 * j, acc[j]);
}

void attention_values(const float* p, const float* v, size_t v_stride, size_t n, size_t head_dim,
                      float* out) {
  size_t d = 0;
  for (; d + 64 <= head_dim; d += 64)
    value_columns<8>(p, v + d, v_stride, n, out + d);
  for (; d + 8 <= head_dim; d += 8)
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

}  // namespace ts::avx2
