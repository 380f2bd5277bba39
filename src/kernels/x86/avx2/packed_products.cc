// Products of packed ternary tiles (packed_layouts.inc) with quantized activation rows.
//
// Idea: lane = row. Four int8 activations are broadcast and multiplied with the codes of 16 rows;
// int16 sums run over a whole group, so widening, offset and scales cost once per group and no lane
// ever meets another. One activation row: codes go from the packed bytes to maddubs in registers.
// Several: 1024 columns of a tile are unpacked to bytes in the first-level cache, then multiplied
// with four activation rows at a time (16 rows x 4 columns, eight named int16 accumulators).
// Exact: bit for bit the definition in kernel_table.h. int16 sums of a group: codes up to 3 give at
// most 128 * 3 * 127 / 2 = 24384 per lane. Two-bit fields taken without a shift count four times:
// 64 columns give at most 8 * 2 * 12 * 127 = 24384.
// Preconditions: those of PackedKernels in kernel_table.h; any alignment.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, busy machine, data in cache), cycles per 32
// weights: one row PQ2_0 0.85, PTQ1_0 1.3; four rows 2.9 and 3.2, eight 5.1 and 5.4, sixteen 9.5
// and 9.8. With 64 rows 60 to 74 % of the rate of maddubs and additions on registers alone.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/packed_layouts.inc"

inline __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline __m256i four(const int8_t* q) {
  int32_t word;
  __builtin_memcpy(&word, q, sizeof(word));
  return _mm256_set1_epi32(word);
}

inline __m256 halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

inline __m256i accumulate(__m256i sum, __m256i codes, __m256i q) {
  return _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, q));
}

/// The empty assembly keeps the addition here: g++ 12 puts off the long sums of fields, and the
/// products that wait for it would go through memory.
inline __m256i accumulate_now(__m256i sum, __m256i codes, __m256i q) {
  sum = accumulate(sum, codes, q);
  __asm__("" : "+x"(sum));
  return sum;
}

inline float half_value(uint16_t bits) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

/// Bytes ahead of the reader that are requested from memory.
constexpr size_t kAhead = 4096;

inline void prefetch(const uint8_t* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
}

/// Sums of a group's codes times activations, 8 + 8 rows.
struct Sums {
  __m256i a, b;
};

/// acc[g % 8] of 16 rows.
inline void add_group(float* acc, Sums sums, const uint8_t* scales, int32_t isum, float a_scale) {
  const __m256i offset = _mm256_set1_epi32(isum);
  const __m256 activation = _mm256_set1_ps(a_scale);
  const auto add = [&](float* at, __m256i sum, const uint8_t* half) {
    const __m256 factor = _mm256_mul_ps(halves(half), activation);
    const __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(sum, offset));
    _mm256_storeu_ps(at, _mm256_add_ps(_mm256_loadu_ps(at), _mm256_mul_ps(value, factor)));
  };
  add(acc, sums.a, scales);
  add(acc + 8, sums.b, scales + 16);
}

/// tree() of kernel_table.h for 16 rows; acc [8, 16].
inline void store_rows(const float* acc, float* y, size_t n_rows) {
  alignas(32) float all[kRows];
  float* out = n_rows == kRows ? y : all;
  for (size_t i = 0; i < kRows; i += 8) {
    const auto l = [&](size_t lane) { return _mm256_loadu_ps(acc + lane * kRows + i); };
    const __m256 even = _mm256_add_ps(_mm256_add_ps(l(0), l(4)), _mm256_add_ps(l(2), l(6)));
    const __m256 odd = _mm256_add_ps(_mm256_add_ps(l(1), l(5)), _mm256_add_ps(l(3), l(7)));
    _mm256_storeu_ps(out + i, _mm256_add_ps(even, odd));
  }
  if (n_rows == kRows) return;
  for (size_t r = 0; r < n_rows; ++r)
    y[r] = all[r];
}

template <size_t Group>
inline Sums group_sums(TwoBit<Group>, const uint8_t* w, const int8_t* q) {
  const __m256i low = _mm256_set1_epi8(3), high = _mm256_set1_epi8(12);
  const __m256i one = _mm256_set1_epi16(1), times4 = _mm256_set1_epi16(4);
  Sums total = {_mm256_setzero_si256(), _mm256_setzero_si256()};
#pragma GCC unroll 2
  for (size_t half = 0; half < Group / 64; ++half) {
    __m256i a1 = _mm256_setzero_si256(), a4 = a1, b1 = a1, b4 = a1;
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v, w += 64, q += 16) {
      prefetch(w + kAhead);
      const __m256i a = load32(w), b = load32(w + 32);
      const __m256i a_up = _mm256_srli_epi16(a, 4), b_up = _mm256_srli_epi16(b, 4);
      const __m256i q0 = four(q), q1 = four(q + 4), q2 = four(q + 8), q3 = four(q + 12);
      a1 = accumulate_now(a1, _mm256_and_si256(a, low), q0);
      b1 = accumulate_now(b1, _mm256_and_si256(b, low), q0);
      a4 = accumulate_now(a4, _mm256_and_si256(a, high), q1);
      b4 = accumulate_now(b4, _mm256_and_si256(b, high), q1);
      a1 = accumulate_now(a1, _mm256_and_si256(a_up, low), q2);
      b1 = accumulate_now(b1, _mm256_and_si256(b_up, low), q2);
      a4 = accumulate_now(a4, _mm256_and_si256(a_up, high), q3);
      b4 = accumulate_now(b4, _mm256_and_si256(b_up, high), q3);
    }
    total.a = _mm256_add_epi32(
        total.a, _mm256_add_epi32(_mm256_madd_epi16(a1, times4), _mm256_madd_epi16(a4, one)));
    total.b = _mm256_add_epi32(
        total.b, _mm256_add_epi32(_mm256_madd_epi16(b1, times4), _mm256_madd_epi16(b4, one)));
  }
  return {_mm256_srai_epi32(total.a, 2), _mm256_srai_epi32(total.b, 2)};
}

/// The two codes of base-9 digits; bits 4-6 of a byte do not matter.
struct DigitTables {
  __m256i first = _mm256_setr_epi8(0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0,  //
                                   0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0);
  __m256i second = _mm256_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0,  //
                                    0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0);
};

/// Takes the next base-9 digit of 32 words off x and y and packs the digits to bytes.
inline __m256i next_digit(__m256i* x, __m256i* y) {
  const __m256i nine = _mm256_set1_epi16(9);
  const __m256i digits =
      _mm256_packus_epi16(_mm256_mulhi_epu16(*x, nine), _mm256_mulhi_epu16(*y, nine));
  *x = _mm256_mullo_epi16(*x, nine);
  *y = _mm256_mullo_epi16(*y, nine);
  return digits;
}

inline Sums group_sums(Base3, const uint8_t* w, const int8_t* q) {
  const DigitTables tables;
  const __m256i one = _mm256_set1_epi16(1);
  __m256i a = _mm256_setzero_si256(), b = a;
  const auto two_steps = [&](__m256i da, __m256i db) {
    const __m256i q0 = four(q), q1 = four(q + 4);
    a = accumulate(a, _mm256_shuffle_epi8(tables.first, da), q0);
    b = accumulate(b, _mm256_shuffle_epi8(tables.first, db), q0);
    a = accumulate(a, _mm256_shuffle_epi8(tables.second, da), q1);
    b = accumulate(b, _mm256_shuffle_epi8(tables.second, db), q1);
    q += 8;
  };
  for (size_t unit = 0; unit < Base3::kUnits; ++unit, w += Base3::kUnitBytes) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    __m256i xa = load32(w), xb = load32(w + 32), ya = load32(w + 64), yb = load32(w + 96);
#pragma GCC unroll 5
    for (int k = 0; k < 5; ++k) {
      const __m256i da = next_digit(&xa, &ya), db = next_digit(&xb, &yb);
      two_steps(da, db);
    }
  }
  prefetch(w + kAhead);
  const __m256i last = load32(w), nibble = _mm256_set1_epi8(15);
  two_steps(_mm256_and_si256(last, nibble), _mm256_and_si256(_mm256_srli_epi16(last, 4), nibble));
  return {_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one)};
}

inline void store_step(uint8_t* out, __m256i codes) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(out), codes);
}

/// One group as bytes: step after step, 64 bytes of 16 rows.
template <size_t Group>
inline void unpack_group(TwoBit<Group>, const uint8_t* w, uint8_t* steps) {
  const __m256i low = _mm256_set1_epi8(3);
  for (size_t at = 0; at < Group * kRows / 4; at += 64, w += 64, steps += 256) {
    prefetch(w + kAhead);
    for (size_t half = 0; half < 64; half += 32) {
      const __m256i x = load32(w + half);
      store_step(steps + half, _mm256_and_si256(x, low));
      store_step(steps + 64 + half, _mm256_and_si256(_mm256_srli_epi16(x, 2), low));
      store_step(steps + 128 + half, _mm256_and_si256(_mm256_srli_epi16(x, 4), low));
      store_step(steps + 192 + half, _mm256_and_si256(_mm256_srli_epi16(x, 6), low));
    }
  }
}

inline void unpack_group(Base3, const uint8_t* w, uint8_t* steps) {
  const DigitTables tables;
  const auto two_steps = [&](uint8_t* out, __m256i digits) {
    store_step(out, _mm256_shuffle_epi8(tables.first, digits));
    store_step(out + 64, _mm256_shuffle_epi8(tables.second, digits));
  };
  for (size_t unit = 0; unit < Base3::kUnits; ++unit, w += Base3::kUnitBytes, steps += 640) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    for (size_t half = 0; half < 64; half += 32) {
      __m256i x = load32(w + half), y = load32(w + 64 + half);
#pragma GCC unroll 5
      for (size_t k = 0; k < 5; ++k)
        two_steps(steps + 128 * k + half, next_digit(&x, &y));
    }
  }
  prefetch(w + kAhead);
  const __m256i last = load32(w), nibble = _mm256_set1_epi8(15);
  two_steps(steps, _mm256_and_si256(last, nibble));
  two_steps(steps + 32, _mm256_and_si256(_mm256_srli_epi16(last, 4), nibble));
}

/// One step of 16 rows x 4 columns. In assembly, since g++ 12 adds as many register moves to the
/// loop as it has additions.
struct FourColumns {
  __m256i a0, b0, a1, b1, a2, b2, a3, b3;

  void step(const uint8_t* codes, const int8_t* q0, const int8_t* q1, const int8_t* q2,
            const int8_t* q3) {
    const auto bytes4 = [](const int8_t* q) -> const char(&)[4] {
      return *reinterpret_cast<const char(*)[4]>(q);
    };
    const auto bytes32 = [](const uint8_t* p) -> const char(&)[32] {
      return *reinterpret_cast<const char(*)[32]>(p);
    };
    __m256i wa, wb, x, t, u;
    __asm__(
        "vmovdqu %[ca], %[wa]\n\t"
        "vmovdqu %[cb], %[wb]\n\t"
        "vpbroadcastd %[q0], %[x]\n\t"
        "vpmaddubsw %[x], %[wa], %[t]\n\t"
        "vpmaddubsw %[x], %[wb], %[u]\n\t"
        "vpaddw %[t], %[a0], %[a0]\n\t"
        "vpaddw %[u], %[b0], %[b0]\n\t"
        "vpbroadcastd %[q1], %[x]\n\t"
        "vpmaddubsw %[x], %[wa], %[t]\n\t"
        "vpmaddubsw %[x], %[wb], %[u]\n\t"
        "vpaddw %[t], %[a1], %[a1]\n\t"
        "vpaddw %[u], %[b1], %[b1]\n\t"
        "vpbroadcastd %[q2], %[x]\n\t"
        "vpmaddubsw %[x], %[wa], %[t]\n\t"
        "vpmaddubsw %[x], %[wb], %[u]\n\t"
        "vpaddw %[t], %[a2], %[a2]\n\t"
        "vpaddw %[u], %[b2], %[b2]\n\t"
        "vpbroadcastd %[q3], %[x]\n\t"
        "vpmaddubsw %[x], %[wa], %[t]\n\t"
        "vpmaddubsw %[x], %[wb], %[u]\n\t"
        "vpaddw %[t], %[a3], %[a3]\n\t"
        "vpaddw %[u], %[b3], %[b3]\n\t"
        : [a0] "+x"(a0), [b0] "+x"(b0), [a1] "+x"(a1), [b1] "+x"(b1), [a2] "+x"(a2), [b2] "+x"(b2),
          [a3] "+x"(a3), [b3] "+x"(b3), [wa] "=&x"(wa), [wb] "=&x"(wb), [x] "=&x"(x), [t] "=&x"(t),
          [u] "=&x"(u)
        : [ca] "m"(bytes32(codes)), [cb] "m"(bytes32(codes + 32)), [q0] "m"(bytes4(q0)),
          [q1] "m"(bytes4(q1)), [q2] "m"(bytes4(q2)), [q3] "m"(bytes4(q3)));
  }
};

constexpr int kColumnsAtOnce = 4;

/// Unpacked groups [first, first + n) of one tile times N activation rows; acc [N, 8, 16].
template <class Layout, int N>
void block_product(const uint8_t* steps, const uint8_t* scales, size_t first, size_t n,
                   const ActRow* act, float* acc) {
  constexpr size_t kGroup = Layout::kGroup;
  const __m256i one = _mm256_set1_epi16(1);
  const int8_t* q0 = act[0].q + first * kGroup;
  const int8_t* q1 = act[N > 1 ? 1 : 0].q + first * kGroup;
  const int8_t* q2 = act[N > 2 ? 2 : 0].q + first * kGroup;
  const int8_t* q3 = act[N > 2 ? 3 : 0].q + first * kGroup;
  for (size_t g = first; g < first + n; ++g, scales += Layout::kBytes) {
    const auto add = [&](int m, __m256i a, __m256i b) {
      add_group(acc + (static_cast<size_t>(m) * 8 + g % 8) * kRows,
                {_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one)}, scales, act[m].isum[g],
                act[m].scale[g]);
    };
    const __m256i zero = _mm256_setzero_si256();
    if constexpr (N == 4) {
      FourColumns sums = {zero, zero, zero, zero, zero, zero, zero, zero};
#pragma GCC unroll 4
      for (size_t s = 0; s < kGroup; s += 4, steps += 64)
        sums.step(steps, q0 + s, q1 + s, q2 + s, q3 + s);
      add(0, sums.a0, sums.b0);
      add(1, sums.a1, sums.b1);
      add(2, sums.a2, sums.b2);
      add(3, sums.a3, sums.b3);
    } else {
      __m256i a0 = zero, b0 = zero, a1 = zero, b1 = zero;
#pragma GCC unroll 4
      for (size_t s = 0; s < kGroup; s += 4, steps += 64) {
        const __m256i wa = load32(steps), wb = load32(steps + 32);
        const __m256i x0 = four(q0 + s);
        a0 = accumulate(a0, wa, x0);
        b0 = accumulate(b0, wb, x0);
        if constexpr (N > 1) {
          const __m256i x1 = four(q1 + s);
          a1 = accumulate(a1, wa, x1);
          b1 = accumulate(b1, wb, x1);
        }
      }
      add(0, a0, b0);
      if constexpr (N > 1) add(1, a1, b1);
    }
    q0 += kGroup;
    q1 += kGroup;
    q2 += kGroup;
    q3 += kGroup;
  }
}

#include "kernels/packed_products.inc"

}  // namespace

void set_packed_products(KernelTable* table) {
  set_all(table);
}

}  // namespace ts::avx2
