// Products of tiles of two-bit codes (packed_layouts.inc) by dpbusd, 256 bits wide.
//
// Idea: as in the AVX2 kernels, lane = row; dpbusd adds four products to each 32-bit lane at once,
// so nothing has to be widened or added, and fields are taken by masks without shifts: their sums
// (1, 4, 16 and 64 times the true ones) are shifted once per group. Exact: bit for bit the
// definition in kernel_table.h; 32-bit sums cannot overflow. Preconditions: those of PackedKernels
// in kernel_table.h; any alignment. Not measured: no machine with these instructions was at hand;
// checked under emulation.
#include "kernels/x86/avx_vnni/avx_vnni_kernels.h"
#include "kernels/x86/intrinsics.h"

namespace ts::avx_vnni {
namespace {

#include "kernels/x86/avx_vnni/dpbusd.inc"

inline __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// clang-format off
#include "kernels/x86/packed_layouts.inc"
#include "kernels/x86/avx2/tiles.inc"
// clang-format on

inline float half_value(uint16_t bits) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

template <size_t Group>
inline Sums group_sums(TwoBit<Group>, const uint8_t* w, const int8_t* q) {
  const __m256i m0 = _mm256_set1_epi8(0x03), m1 = _mm256_set1_epi8(0x0C);
  const __m256i m2 = _mm256_set1_epi8(0x30), m3 = _mm256_set1_epi8(static_cast<char>(0xC0));
  const __m256i zero = _mm256_setzero_si256();
  __m256i a0 = zero, a1 = zero, a2 = zero, a3 = zero, b0 = zero, b1 = zero, b2 = zero, b3 = zero;
#pragma GCC unroll 4
  for (size_t v = 0; v < Group / 16; ++v, w += 64, q += 16) {
    prefetch(w + kAhead);
    const __m256i a = load32(w), b = load32(w + 32);
    const __m256i q0 = four(q), q1 = four(q + 4), q2 = four(q + 8), q3 = four(q + 12);
    a0 = TS_DPBUSD(a0, _mm256_and_si256(a, m0), q0);
    b0 = TS_DPBUSD(b0, _mm256_and_si256(b, m0), q0);
    a1 = TS_DPBUSD(a1, _mm256_and_si256(a, m1), q1);
    b1 = TS_DPBUSD(b1, _mm256_and_si256(b, m1), q1);
    a2 = TS_DPBUSD(a2, _mm256_and_si256(a, m2), q2);
    b2 = TS_DPBUSD(b2, _mm256_and_si256(b, m2), q2);
    a3 = TS_DPBUSD(a3, _mm256_and_si256(a, m3), q3);
    b3 = TS_DPBUSD(b3, _mm256_and_si256(b, m3), q3);
  }
  const auto join = [](__m256i s0, __m256i s1, __m256i s2, __m256i s3) {
    return _mm256_add_epi32(_mm256_add_epi32(s0, _mm256_srai_epi32(s1, 2)),
                            _mm256_add_epi32(_mm256_srai_epi32(s2, 4), _mm256_srai_epi32(s3, 6)));
  };
  return {join(a0, a1, a2, a3), join(b0, b1, b2, b3)};
}

constexpr int kColumnsAtOnce = 4;

/// Unpacked groups [first, first + n) of one tile times N activation rows; acc [N, 8, 16].
template <class Layout, int N>
void block_product(const uint8_t* steps, const uint8_t* scales, size_t first, size_t n,
                   const ActRow* act, float* acc) {
  constexpr size_t kGroup = Layout::kGroup;
  for (size_t g = first; g < first + n; ++g, scales += Layout::kBytes) {
    const size_t at = g * kGroup;
    const int8_t *q0 = act[0].q + at, *q1 = act[N > 1 ? 1 : 0].q + at;
    const int8_t *q2 = act[N > 2 ? 2 : 0].q + at, *q3 = act[N > 2 ? 3 : 0].q + at;
    const __m256i zero = _mm256_setzero_si256();
    __m256i a0 = zero, b0 = zero, a1 = zero, b1 = zero, a2 = zero, b2 = zero, a3 = zero, b3 = zero;
#pragma GCC unroll 4
    for (size_t s = 0; s < kGroup; s += 4, steps += 64) {
      const __m256i wa = load32(steps), wb = load32(steps + 32);
      const __m256i x0 = four(q0 + s);
      a0 = TS_DPBUSD(a0, wa, x0);
      b0 = TS_DPBUSD(b0, wb, x0);
      if constexpr (N > 1) {
        const __m256i x1 = four(q1 + s);
        a1 = TS_DPBUSD(a1, wa, x1);
        b1 = TS_DPBUSD(b1, wb, x1);
      }
      if constexpr (N > 2) {
        const __m256i x2 = four(q2 + s), x3 = four(q3 + s);
        a2 = TS_DPBUSD(a2, wa, x2);
        b2 = TS_DPBUSD(b2, wb, x2);
        a3 = TS_DPBUSD(a3, wa, x3);
        b3 = TS_DPBUSD(b3, wb, x3);
      }
    }
    const auto add = [&](size_t m, __m256i a, __m256i b) {
      add_group(acc + (m * 8 + g % 8) * kRows, {a, b}, scales, act[m].isum[g], act[m].scale[g]);
    };
    add(0, a0, b0);
    if constexpr (N > 1) add(1, a1, b1);
    if constexpr (N > 2) {
      add(2, a2, b2);
      add(3, a3, b3);
    }
  }
}

#include "kernels/packed_products.inc"

}  // namespace

void set_packed_products(KernelTable* table) {
  set<TwoBit<64>>(table, kIntQ2_0);
  set<TwoBit<128>>(table, kIntPQ2_0);
  set<TwoBit<128>>(table, kIntTQ2_0);
}

}  // namespace ts::avx_vnni
