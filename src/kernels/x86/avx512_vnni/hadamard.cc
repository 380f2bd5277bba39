// Signed Walsh-Hadamard transforms for AVX-512 (idea and preconditions: kernels/hadamard.inc).
// Bit-exact with the reference for every input but the payload of NaNs. Not measured: no such
// machine at hand.
#include "kernels/x86/avx512_vnni/avx512_vnni_kernels.h"
#include "kernels/x86/intrinsics.h"

namespace ts::avx512_vnni {
namespace {

struct Vector16 {
  using F = __m512;
  static constexpr size_t kLanes = 16;
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F xor_bits(F v, __m512i bits) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), bits));
  }
  static F flip(F v, const uint32_t* flips) { return xor_bits(v, _mm512_loadu_si512(flips)); }
  /// a - b is computed as a + (-b), which is the same number.
  template <int kHalf>
  static F level(F v) {
    const int m = INT32_MIN;
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i partner = _mm512_xor_si512(lanes, _mm512_set1_epi32(kHalf));
    const __m512i minus =
        kHalf == 1   ? _mm512_set_epi32(m, 0, m, 0, m, 0, m, 0, m, 0, m, 0, m, 0, m, 0)
        : kHalf == 2 ? _mm512_set_epi32(m, m, 0, 0, m, m, 0, 0, m, m, 0, 0, m, m, 0, 0)
        : kHalf == 4 ? _mm512_set_epi32(m, m, m, m, 0, 0, 0, 0, m, m, m, m, 0, 0, 0, 0)
                     : _mm512_set_epi32(m, m, m, m, m, m, m, m, 0, 0, 0, 0, 0, 0, 0, 0);
    return add(_mm512_permutexvar_ps(partner, v), xor_bits(v, minus));
  }
};

#include "kernels/hadamard.inc"

}  // namespace

void set_hadamard(KernelTable* table) {
  table->rotate = rotate_with<Vector16>;
  table->unrotate = unrotate_with<Vector16>;
}

}  // namespace ts::avx512_vnni
