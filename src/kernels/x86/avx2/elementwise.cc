// Element-wise operations compiled for AVX2: the same arithmetic as the reference
// (elementwise.inc), eight lanes at a time by the compiler's vectoriser; the quantizer and the
// half-precision conversion by hand. Bit-exact with the reference for every input.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/elementwise.inc"

/// Sum of eight int32.
inline int32_t sum8(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

/// Largest of eight uint32.
inline uint32_t max8(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

/// Whole groups of a row by 32 elements; the short last group by the plain code.
void quantize_row(const float* x, size_t k, size_t group, const ActRowOut* out) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const size_t whole = k / group;
  for (size_t g = 0; g < whole; ++g) {
    const float* src = x + g * group;
    __m256i top = _mm256_setzero_si256();
    for (size_t i = 0; i < group; i += 8)
      top = _mm256_max_epu32(
          top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(src + i)), magnitude));
    const uint32_t bits = max8(top);
    const float max = __builtin_bit_cast(float, bits);
    const bool finite = bits < 0x7F800000u;
    const bool zero = max < 1e-30F;
    const float inverse = finite && !zero ? 127.0F / max : 0.0F;
    const float nan = __builtin_bit_cast(float, 0x7FC00000u);
    const float scale = !finite ? nan : zero ? 0.0F : max / 127.0F;
    const __m256 factor = _mm256_set1_ps(inverse);
    const __m256i keep = _mm256_set1_epi32(finite ? -1 : 0);
    int32_t sum = 0;
    for (size_t i = 0; i < group; i += 32) {
      const auto codes = [&](size_t at) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(src + i + at), factor);
        return _mm256_and_si256(_mm256_cvtps_epi32(scaled), keep);  // rounds to nearest even
      };
      const __m256i a = codes(0), b = codes(8), c = codes(16), d = codes(24);
      const int32_t low = sum8(_mm256_add_epi32(a, b));
      const int32_t high = sum8(_mm256_add_epi32(c, d));
      sum += low + high;
      const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->q + g * group + i),
                          _mm256_permutevar8x32_epi32(packed, order));
      if (out->scale16) {
        const size_t part = (g * group + i) / 16;
        out->scale16[part] = scale;
        out->scale16[part + 1] = scale;
        out->isum16[part] = low;
        out->isum16[part + 1] = high;
        out->fsum16[part] = scale * static_cast<float>(low);
        out->fsum16[part + 1] = scale * static_cast<float>(high);
      }
    }
    out->scale[g] = scale;
    out->isum[g] = sum;
    out->fsum[g] = scale * static_cast<float>(sum);
  }
  quantize_groups(x, k, group, whole, out);
}

/// vcvtps2ph rounds like the reference; it differs in the payload of NaNs, which keep the bits
/// "quiet NaN" there and here.
void f32_to_f16(const float* src, size_t n, uint16_t* dst) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i h = _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), h);
  }
  for (; i < n; ++i)
    dst[i] = static_cast<uint16_t>(
        _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(src[i]), _MM_FROUND_TO_NEAREST_INT), 0));
}

}  // namespace

void set_elementwise(KernelTable* table) {
  table->quantize_row = quantize_row;
  table->f32_to_f16 = f32_to_f16;
  table->rms_norm = rms_norm;
  table->add = add;
  table->scale = scale;
  table->silu_gate = silu_gate;
  table->gelu_gate = gelu_gate;
  table->softcap = softcap;
  table->rope_half_split = rope_half_split;
  table->rope_interleaved = rope_interleaved;
  table->dequantize32 = dequantize32;
  table->softmax_terms = softmax_terms;
  table->exp = exp_one;
  table->scaled_add = scaled_add;
}

}  // namespace ts::avx2
