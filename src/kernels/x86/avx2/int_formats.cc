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
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/avx2/formats.inc"
#include "kernels/x86/avx2/reduce.inc"

template <class F>
constexpr IntFormatInfo kInfo = kIntFormatInfo[F::kFormat];

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
    const __m256i w = F::template codes<kV>(block);
    sum = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(load32(a), w));
  } else {
    sum = _mm256_maddubs_epi16(F::template codes<kV>(block), load32(a));
    if constexpr (kUnit >= 64)
      sum = _mm256_add_epi16(
          sum, _mm256_maddubs_epi16(F::template codes<kV + 1>(block), load32(a + 32)));
    if constexpr (kUnit >= 128) {
      sum = _mm256_add_epi16(
          sum, _mm256_maddubs_epi16(F::template codes<kV + 2>(block), load32(a + 64)));
      sum = _mm256_add_epi16(
          sum, _mm256_maddubs_epi16(F::template codes<kV + 3>(block), load32(a + 96)));
    }
  }
  return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

/// The f32 accumulators of one row.
template <class F>
struct Accumulator {
  static constexpr bool kHasOffset = kInfo<F>.offset != 0;
  static constexpr bool kHasMinimum = kInfo<F>.min_group != 0;
  __m256 acc = _mm256_setzero_ps(), low = _mm256_setzero_ps();

  /// Eight groups; `g` indexes the activation's arrays.
  void add(__m256i sums, __m256 scales, __m256 minimums, const float* a_scale, const int32_t* isum,
           const float* fsum, size_t g) {
    if constexpr (kHasOffset)
      sums = _mm256_sub_epi32(
          sums, _mm256_mullo_epi32(_mm256_set1_epi32(kInfo<F>.offset), load32(isum + g)));
    const __m256 factor = _mm256_mul_ps(scales, _mm256_loadu_ps(a_scale + g));
    acc = _mm256_add_ps(acc, _mm256_mul_ps(_mm256_cvtepi32_ps(sums), factor));
    if constexpr (kHasMinimum)
      low = _mm256_add_ps(low, _mm256_mul_ps(minimums, _mm256_loadu_ps(fsum + g)));
  }
  float result() const {
    if constexpr (kHasMinimum)
      return tree(acc) + tree(low);
    else
      return tree(acc);
  }
};

/// One row of a format with groups of 32 or more.
template <class F>
inline float row_product(const uint8_t* row, size_t k, const ActRow& act) {
  constexpr size_t kGroup = kInfo<F>.group;
  constexpr size_t kPerBlock = kInfo<F>.block_elems / kGroup;
  constexpr size_t kStepBytes = 8 / kPerBlock * kInfo<F>.block_bytes;
  const size_t n_groups = k / kGroup;
  Accumulator<F> sum;
  const int8_t* q = act.q;
  size_t g = 0;
  for (; g + 8 <= n_groups; g += 8, row += kStepBytes, q += 8 * kGroup) {
    const __m256i abcd = quad(pair(lanes<F, 0>(row, q), lanes<F, 1>(row, q)),
                              pair(lanes<F, 2>(row, q), lanes<F, 3>(row, q)));
    const __m256i efgh = quad(pair(lanes<F, 4>(row, q), lanes<F, 5>(row, q)),
                              pair(lanes<F, 6>(row, q), lanes<F, 7>(row, q)));
    __m256 scales, minimums = _mm256_setzero_ps();
    F::both8(row, &scales, &minimums);
    sum.add(octet(abcd, efgh), scales, minimums, act.scale, act.isum, act.fsum, g);
  }
  if constexpr (kPerBlock < 8) {
    if (g < n_groups) {
      alignas(32) int32_t sums[8] = {};
      alignas(32) float scales[8] = {}, minimums[8] = {};
      const auto total = [](__m256i l) {
        __m128i s = _mm_add_epi32(_mm256_castsi256_si128(l), _mm256_extracti128_si256(l, 1));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
        return _mm_cvtsi128_si32(s);
      };
      for (size_t i = 0; i < n_groups - g; i += kPerBlock) {
        sums[i] = total(lanes<F, 0>(row, q));
        scales[i] = F::scale(row, 0);
        minimums[i] = F::minimum(row, 0);
        if constexpr (kPerBlock == 2) {
          sums[i + 1] = total(lanes<F, 1>(row, q));
          scales[i + 1] = F::scale(row, 1);
          minimums[i + 1] = F::minimum(row, 1);
        }
        row += kInfo<F>.block_bytes;
        q += kInfo<F>.block_elems;
      }
      sum.add(load32(sums), _mm256_load_ps(scales), _mm256_load_ps(minimums), act.scale, act.isum,
              act.fsum, g);
    }
  }
  return sum.result();
}

/// One row of a format with groups of 16: two octets per block.
template <class F>
inline float row_product16(const uint8_t* row, size_t k, const ActRow& act) {
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  Accumulator<F> sum;
  const int8_t* q = act.q;
  for (size_t g = 0; g < k / 16; g += 16, row += kInfo<F>.block_bytes, q += 256) {
    const __m256i first = quad(pair(lanes<F, 0>(row, q), lanes<F, 1>(row, q)),
                               pair(lanes<F, 2>(row, q), lanes<F, 3>(row, q)));
    const __m256i second = quad(pair(lanes<F, 4>(row, q), lanes<F, 5>(row, q)),
                                pair(lanes<F, 6>(row, q), lanes<F, 7>(row, q)));
    __m256 scales, minimums = _mm256_setzero_ps();
    F::octet(row, 0, &scales, &minimums);
    sum.add(_mm256_permutevar8x32_epi32(first, order), scales, minimums, act.scale16, act.isum16,
            act.fsum16, g);
    F::octet(row, 1, &scales, &minimums);
    sum.add(_mm256_permutevar8x32_epi32(second, order), scales, minimums, act.scale16, act.isum16,
            act.fsum16, g + 8);
  }
  return sum.result();
}

template <class F>
void gemv(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, const ActRow* act,
          float* y) {
  for (size_t r = 0; r < n_rows; ++r) {
    if constexpr (kInfo<F>.group == 16)
      y[r] = row_product16<F>(w + r * row_bytes, k, *act);
    else
      y[r] = row_product<F>(w + r * row_bytes, k, *act);
  }
}

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
