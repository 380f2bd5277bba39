// Unpackers of every integer format, and direct products of packed rows with one activation row.
//
// Idea: formats.inc turns a block into 32 codes at a time in registers; the direct product feeds
// them to maddubs without storing them. Eight group sums are made at once (reduce.inc), so offset,
// conversion and scales cost once per eight groups. Rows are read one after the other: a thread has
// one sequential stream.
// Exact: bit for bit the reference. int16 pair sums: codes up to 63 give at most 16002, groups of
// 64 and 128 (codes <= 3) add up to four of 762; signed bytes go through |w| * sign(a, w), at most
// 32512.
// Preconditions: those of kernel_table.h; any alignment; nothing is read outside the rows.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, `kernel_cycles_bench avx2 1536`, data in cache),
// cycles per 32 weights, direct product: Q4_0 2.1, Q4_1 2.7, Q5_0 3.0, Q8_0 2.0, Q4_K 2.7,
// Q6_K 2.5, TQ2_0 1.4, PQ2_0 1.6, PTQ1_0 3.0. At 3 GHz that is 24 GB/s of Q4_1, 16 of PQ2_0 and 7
// of PTQ1_0 per core; the reference needs 36 to 126 cycles.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/formats.inc"
#include "kernels/x86/reduce.inc"

template <class F>
constexpr int kOffset = kInfo<F>.offset;

/// int32 lanes of unit I (a group, or two groups of 16) counted from a block boundary.
template <class F, int I>
inline __m256i lanes(const uint8_t* base, const int8_t* q) {
  constexpr int kGroup = kInfo<F>.group, kBlock = kInfo<F>.block_elems;
  constexpr int kUnit = kGroup < 32 ? 32 : kGroup;
  constexpr int kAt = I * kUnit;
  constexpr int kV = kAt % kBlock / 32;
  const uint8_t* block = base + static_cast<size_t>(kAt / kBlock) * kInfo<F>.block_bytes;
  const int8_t* a = q + kAt;
  __m256i sum;
  if constexpr (kInfo<F>.max_code == 255) {
    const __m256i w = product_codes<F, kV>(block);
    sum = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(load32(a), w));
  } else {
    sum = _mm256_maddubs_epi16(product_codes<F, kV>(block), load32(a));
    if constexpr (kUnit >= 64)
      sum = _mm256_add_epi16(sum,
                             _mm256_maddubs_epi16(product_codes<F, kV + 1>(block), load32(a + 32)));
    if constexpr (kUnit >= 128) {
      sum = _mm256_add_epi16(sum,
                             _mm256_maddubs_epi16(product_codes<F, kV + 2>(block), load32(a + 64)));
      sum = _mm256_add_epi16(sum,
                             _mm256_maddubs_epi16(product_codes<F, kV + 3>(block), load32(a + 96)));
    }
  }
  return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

#include "kernels/x86/row_products.inc"

template <class F, int V = 0>
inline void store_codes(const uint8_t* block, uint8_t* codes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 32 * V), F::template codes<V>(block));
  if constexpr (32 * (V + 1) < kInfo<F>.block_elems) store_codes<F, V + 1>(block, codes);
}

template <class F>
void unpack(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  constexpr size_t kBlock = kInfo<F>.block_elems;
  constexpr bool kHasMinimum = kInfo<F>.min_group != 0;
  for (size_t b = 0; b < k / kBlock; ++b, row += kInfo<F>.block_bytes) {
    store_codes<F>(row, codes + b * kBlock);
    if constexpr (kInfo<F>.group == 16) {
      for (int octet = 0; octet < 2; ++octet) {
        __m256 s, m;
        F::octet(row, octet, &s, &m);
        const size_t at = b * 16 + 8 * static_cast<size_t>(octet);
        _mm256_storeu_ps(scales + at, s);
        if constexpr (kHasMinimum) _mm256_storeu_ps(mins + at, m);
      }
    } else if constexpr (kBlock == 256 && kInfo<F>.group == 32) {
      __m256 s, m;
      F::both8(row, &s, &m);
      _mm256_storeu_ps(scales + b * 8, s);
      _mm256_storeu_ps(mins + b * 8, m);
    } else {
      constexpr size_t kPerBlock = kBlock / kInfo<F>.group;
      for (size_t i = 0; i < kPerBlock; ++i) {
        scales[b * kPerBlock + i] = F::scale(row, static_cast<int>(i));
        if constexpr (kHasMinimum) mins[b * kPerBlock + i] = F::minimum(row, static_cast<int>(i));
      }
    }
  }
}

template <class F>
void set(KernelTable* table) {
  table->unpack[F::kFormat] = unpack<F>;
  table->int_gemv[F::kFormat] = gemv<F>;
}

}  // namespace

void set_int_formats(KernelTable* table) {
  set<Q4_0>(table);
  set<Q4_1>(table);
  set<Q5_0>(table);
  set<Q5_1>(table);
  set<Q8_0>(table);
  set<Q2_K>(table);
  set<Q3_K>(table);
  set<Q4_K>(table);
  set<Q5_K>(table);
  set<Q6_K>(table);
  set<TQ1_0>(table);
  set<TQ2_0>(table);
  set<Q1_0>(table);
  set<Q2_0>(table);
  set<PQ2_0>(table);
  set<PTQ1_0>(table);
}

}  // namespace ts::avx2
