// Signed Walsh-Hadamard transforms for AVX2 (idea and preconditions: kernels/hadamard.inc).
// Bit-exact with the reference for every input but the payload of NaNs. Measured (AMD EPYC Zen 3,
// g++ 12, 2026-11-30, `kernel_cycles_bench avx2 5120`, data in cache, busy machine), cycles per 32
// elements: 20 in blocks of 1024, 17 in blocks of 128; reference 140, 115.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

struct Vector8 {
  using F = __m256;
  static constexpr size_t kLanes = 8;
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F flip(F v, const uint32_t* flips) {
    return _mm256_xor_ps(
        v, _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(flips))));
  }
  /// a - b is computed as a + (-b), which is the same number.
  template <int kHalf>
  static F level(F v) {
    const float m = -0.0F;
    if constexpr (kHalf == 1)
      return add(_mm256_permute_ps(v, 0xB1),
                 _mm256_xor_ps(v, _mm256_setr_ps(0, m, 0, m, 0, m, 0, m)));
    else if constexpr (kHalf == 2)
      return add(_mm256_permute_ps(v, 0x4E),
                 _mm256_xor_ps(v, _mm256_setr_ps(0, 0, m, m, 0, 0, m, m)));
    else
      return add(_mm256_permute2f128_ps(v, v, 1),
                 _mm256_xor_ps(v, _mm256_setr_ps(0, 0, 0, 0, m, m, m, m)));
  }
};

#include "kernels/hadamard.inc"

}  // namespace

void set_hadamard(KernelTable* table) {
  table->rotate = rotate_with<Vector8>;
  table->unrotate = unrotate_with<Vector8>;
}

}  // namespace ts::avx2
