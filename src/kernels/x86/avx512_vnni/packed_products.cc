// Products of packed ternary tiles (packed_layouts.inc) with quantized activation rows.
//
// Idea: as in the AVX2 kernels, lane = row, with all 16 rows in one vector and dpbusd adding four
// products to each 32-bit lane at once. Two-bit fields are taken by masks without shifts; their
// sums (1, 4, 16 and 64 times the true ones) are shifted once per group. Chains of additions
// alternate between two sets of accumulators. Exact: bit for bit the definition in kernel_table.h;
// 32-bit sums cannot overflow. Preconditions: those of PackedKernels in kernel_table.h; any
// alignment. Not measured: no machine with these instructions was at hand; checked under emulation.
#include "kernels/x86/avx512_vnni/avx512_vnni_kernels.h"
#include "kernels/x86/intrinsics.h"

namespace ts::avx512_vnni {
namespace {

#include "kernels/x86/packed_layouts.inc"

using Sums = __m512i;

inline __m512i load64(const void* p) {
  return _mm512_loadu_si512(p);
}

inline __m512i four(const int8_t* q) {
  int32_t word;
  __builtin_memcpy(&word, q, sizeof(word));
  return _mm512_set1_epi32(word);
}

inline float half_value(uint16_t bits) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

/// Bytes ahead of the reader that are requested from memory.
constexpr size_t kAhead = 4096;

inline void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

inline void add_group(float* acc, Sums sums, const uint8_t* scales, int32_t isum, float a_scale) {
  const __m512 half = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
  const __m512 factor = _mm512_mul_ps(half, _mm512_set1_ps(a_scale));
  const __m512 value = _mm512_cvtepi32_ps(_mm512_sub_epi32(sums, _mm512_set1_epi32(isum)));
  _mm512_storeu_ps(acc, _mm512_add_ps(_mm512_loadu_ps(acc), _mm512_mul_ps(value, factor)));
}

inline void store_rows(const float* acc, float* y, size_t n_rows) {
  const auto l = [&](size_t lane) { return _mm512_loadu_ps(acc + lane * kRows); };
  const __m512 even = _mm512_add_ps(_mm512_add_ps(l(0), l(4)), _mm512_add_ps(l(2), l(6)));
  const __m512 odd = _mm512_add_ps(_mm512_add_ps(l(1), l(5)), _mm512_add_ps(l(3), l(7)));
  alignas(64) float all[kRows];
  _mm512_storeu_ps(n_rows == kRows ? y : all, _mm512_add_ps(even, odd));
  for (size_t r = 0; n_rows < kRows && r < n_rows; ++r)
    y[r] = all[r];
}

template <size_t Group>
inline Sums group_sums(TwoBit<Group>, const uint8_t* w, const int8_t* q) {
  const __m512i m0 = _mm512_set1_epi8(0x03), m1 = _mm512_set1_epi8(0x0C);
  const __m512i m2 = _mm512_set1_epi8(0x30), m3 = _mm512_set1_epi8(static_cast<char>(0xC0));
  const __m512i zero = _mm512_setzero_si512();
  __m512i a0 = zero, a1 = zero, a2 = zero, a3 = zero, b0 = zero, b1 = zero, b2 = zero, b3 = zero;
#pragma GCC unroll 4
  for (size_t v = 0; v < Group / 16; v += 2, w += 128, q += 32) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    const __m512i a = load64(w), b = load64(w + 64);
    a0 = _mm512_dpbusd_epi32(a0, _mm512_and_si512(a, m0), four(q));
    a1 = _mm512_dpbusd_epi32(a1, _mm512_and_si512(a, m1), four(q + 4));
    a2 = _mm512_dpbusd_epi32(a2, _mm512_and_si512(a, m2), four(q + 8));
    a3 = _mm512_dpbusd_epi32(a3, _mm512_and_si512(a, m3), four(q + 12));
    b0 = _mm512_dpbusd_epi32(b0, _mm512_and_si512(b, m0), four(q + 16));
    b1 = _mm512_dpbusd_epi32(b1, _mm512_and_si512(b, m1), four(q + 20));
    b2 = _mm512_dpbusd_epi32(b2, _mm512_and_si512(b, m2), four(q + 24));
    b3 = _mm512_dpbusd_epi32(b3, _mm512_and_si512(b, m3), four(q + 28));
  }
  const __m512i low =
      _mm512_add_epi32(_mm512_add_epi32(a0, b0), _mm512_srai_epi32(_mm512_add_epi32(a1, b1), 2));
  const __m512i high = _mm512_add_epi32(_mm512_srai_epi32(_mm512_add_epi32(a2, b2), 4),
                                        _mm512_srai_epi32(_mm512_add_epi32(a3, b3), 6));
  return _mm512_add_epi32(low, high);
}

/// The two codes of base-9 digits; bits 4-6 of a byte do not matter.
struct DigitTables {
  __m512i first =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0));
  __m512i second =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0));
};

/// Takes the next base-9 digit of 64 words off x and y and packs the digits to bytes.
inline __m512i next_digit(__m512i* x, __m512i* y) {
  const __m512i nine = _mm512_set1_epi16(9);
  const __m512i digits =
      _mm512_packus_epi16(_mm512_mulhi_epu16(*x, nine), _mm512_mulhi_epu16(*y, nine));
  *x = _mm512_mullo_epi16(*x, nine);
  *y = _mm512_mullo_epi16(*y, nine);
  return digits;
}

/// Digits of steps 30 and 31: rows 0-7 in the low, 8-15 in the high nibbles.
inline __m512i last_digits(const uint8_t* w) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(x), _mm256_srli_epi16(x, 4), 1);
  return _mm512_and_si512(both, _mm512_set1_epi8(15));
}

inline Sums group_sums(Base3, const uint8_t* w, const int8_t* q) {
  const DigitTables tables;
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (size_t unit = 0; unit < Base3::kUnits; ++unit, w += Base3::kUnitBytes, q += 40) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    __m512i x = load64(w), y = load64(w + 64);
    const __m512i d0 = next_digit(&x, &y), d1 = next_digit(&x, &y), d2 = next_digit(&x, &y);
    const __m512i d3 = next_digit(&x, &y), d4 = next_digit(&x, &y);
    a = _mm512_dpbusd_epi32(a, _mm512_shuffle_epi8(tables.first, d0), four(q));
    b = _mm512_dpbusd_epi32(b, _mm512_shuffle_epi8(tables.second, d0), four(q + 4));
    c = _mm512_dpbusd_epi32(c, _mm512_shuffle_epi8(tables.first, d1), four(q + 8));
    d = _mm512_dpbusd_epi32(d, _mm512_shuffle_epi8(tables.second, d1), four(q + 12));
    a = _mm512_dpbusd_epi32(a, _mm512_shuffle_epi8(tables.first, d2), four(q + 16));
    b = _mm512_dpbusd_epi32(b, _mm512_shuffle_epi8(tables.second, d2), four(q + 20));
    c = _mm512_dpbusd_epi32(c, _mm512_shuffle_epi8(tables.first, d3), four(q + 24));
    d = _mm512_dpbusd_epi32(d, _mm512_shuffle_epi8(tables.second, d3), four(q + 28));
    a = _mm512_dpbusd_epi32(a, _mm512_shuffle_epi8(tables.first, d4), four(q + 32));
    b = _mm512_dpbusd_epi32(b, _mm512_shuffle_epi8(tables.second, d4), four(q + 36));
  }
  prefetch(w + kAhead);
  const __m512i last = last_digits(w);
  c = _mm512_dpbusd_epi32(c, _mm512_shuffle_epi8(tables.first, last), four(q));
  d = _mm512_dpbusd_epi32(d, _mm512_shuffle_epi8(tables.second, last), four(q + 4));
  return _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
}

template <size_t Group>
inline void unpack_group(TwoBit<Group>, const uint8_t* w, uint8_t* steps) {
  const __m512i low = _mm512_set1_epi8(3);
  for (size_t v = 0; v < Group / 16; ++v, w += 64, steps += 256) {
    prefetch(w + kAhead);
    const __m512i x = load64(w);
    _mm512_storeu_si512(steps, _mm512_and_si512(x, low));
    _mm512_storeu_si512(steps + 64, _mm512_and_si512(_mm512_srli_epi16(x, 2), low));
    _mm512_storeu_si512(steps + 128, _mm512_and_si512(_mm512_srli_epi16(x, 4), low));
    _mm512_storeu_si512(steps + 192, _mm512_and_si512(_mm512_srli_epi16(x, 6), low));
  }
}

inline void unpack_group(Base3, const uint8_t* w, uint8_t* steps) {
  const DigitTables tables;
  const auto two_steps = [&](__m512i digits) {
    _mm512_storeu_si512(steps, _mm512_shuffle_epi8(tables.first, digits));
    _mm512_storeu_si512(steps + 64, _mm512_shuffle_epi8(tables.second, digits));
    steps += 128;
  };
  for (size_t unit = 0; unit < Base3::kUnits; ++unit, w += Base3::kUnitBytes) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    __m512i x = load64(w), y = load64(w + 64);
    for (int k = 0; k < 5; ++k)
      two_steps(next_digit(&x, &y));
  }
  prefetch(w + kAhead);
  two_steps(last_digits(w));
}

constexpr int kColumnsAtOnce = 8;

/// 16 rows x 8 columns: eight named accumulators, since an array would go through memory.
template <class Layout, int N>
void block_product(const uint8_t* steps, const uint8_t* scales, size_t first, size_t n,
                   const ActRow* act, float* acc) {
  constexpr size_t kGroup = Layout::kGroup;
  for (size_t g = first; g < first + n; ++g, scales += Layout::kBytes) {
    const size_t at = g * kGroup;
    const int8_t *q0 = act[0].q + at, *q1 = act[N > 1 ? 1 : 0].q + at;
    const int8_t *q2 = act[N > 2 ? 2 : 0].q + at, *q3 = act[N > 2 ? 3 : 0].q + at;
    const int8_t *q4 = act[N > 4 ? 4 : 0].q + at, *q5 = act[N > 4 ? 5 : 0].q + at;
    const int8_t *q6 = act[N > 4 ? 6 : 0].q + at, *q7 = act[N > 4 ? 7 : 0].q + at;
    const __m512i zero = _mm512_setzero_si512();
    __m512i s0 = zero, s1 = zero, s2 = zero, s3 = zero, s4 = zero, s5 = zero, s6 = zero, s7 = zero;
#pragma GCC unroll 4
    for (size_t s = 0; s < kGroup; s += 4, steps += 64) {
      const __m512i w = load64(steps);
      s0 = _mm512_dpbusd_epi32(s0, w, four(q0 + s));
      if constexpr (N > 1) s1 = _mm512_dpbusd_epi32(s1, w, four(q1 + s));
      if constexpr (N > 2) {
        s2 = _mm512_dpbusd_epi32(s2, w, four(q2 + s));
        s3 = _mm512_dpbusd_epi32(s3, w, four(q3 + s));
      }
      if constexpr (N > 4) {
        s4 = _mm512_dpbusd_epi32(s4, w, four(q4 + s));
        s5 = _mm512_dpbusd_epi32(s5, w, four(q5 + s));
        s6 = _mm512_dpbusd_epi32(s6, w, four(q6 + s));
        s7 = _mm512_dpbusd_epi32(s7, w, four(q7 + s));
      }
    }
    const auto add = [&](size_t m, __m512i sums) {
      add_group(acc + (m * 8 + g % 8) * kRows, sums, scales, act[m].isum[g], act[m].scale[g]);
    };
    add(0, s0);
    if constexpr (N > 1) add(1, s1);
    if constexpr (N > 2) {
      add(2, s2);
      add(3, s3);
    }
    if constexpr (N > 4) {
      add(4, s4);
      add(5, s5);
      add(6, s6);
      add(7, s7);
    }
  }
}

#include "kernels/packed_products.inc"

}  // namespace

void set_packed_products(KernelTable* table) {
  set_all(table);
}

}  // namespace ts::avx512_vnni
