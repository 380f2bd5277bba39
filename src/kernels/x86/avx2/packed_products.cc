// Products of tiles of two-bit codes (packed_layouts.inc) with quantized activation rows.
//
// Idea: lane = row. Four int8 activations are broadcast and multiplied with the codes of 16 rows;
// int16 sums run over a whole group, so widening, offset and scales cost once per group and no lane
// ever meets another. One to three activation rows: codes go from the tile to maddubs in registers,
// for two rows at once. More: up to 1024 columns of a tile are unpacked to bytes in the first-level
// cache, then multiplied with four activation rows at a time (columns.inc).
// Exact: bit for bit the definition in kernel_table.h. int16 sums of a group: codes up to 3 give at
// most 128 * 3 * 127 / 2 = 24384 per lane. Two-bit fields taken without a shift count four times:
// 64 columns give at most 8 * 2 * 12 * 127 = 24384.
// Preconditions: those of PackedKernels in kernel_table.h; any alignment.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, busy machine, `kernel_cycles_bench avx2 5120
// memory`), cycles per 32 weights of PQ2_0 in cache: one row 1.3, two 2.4, four 4.0, eight 7.1,
// sixteen 13; twice that beside a busy thread on the same core. 4.9 instructions for one row.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

inline __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// clang-format off
#include "kernels/x86/packed_layouts.inc"
#include "kernels/x86/avx2/tiles.inc"
#include "kernels/x86/avx2/columns.inc"
// clang-format on

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

#include "kernels/packed_products.inc"

/// Group sums of two activation rows: fields are taken once.
template <size_t Group>
inline void group_sums2(TwoBit<Group>, const uint8_t* w, const int8_t* q, const int8_t* p,
                        Sums* first, Sums* second) {
  const __m256i low = _mm256_set1_epi8(3), high = _mm256_set1_epi8(12);
  const __m256i one = _mm256_set1_epi16(1), times4 = _mm256_set1_epi16(4);
  const __m256i zero = _mm256_setzero_si256();
  *first = *second = {zero, zero};
  for (size_t part = 0; part < Group / 64; ++part, w += 256, q += 64, p += 64) {
    __m256i sa1 = zero, sa4 = zero, sb1 = zero, sb4 = zero;
    __m256i ta1 = zero, ta4 = zero, tb1 = zero, tb4 = zero;
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; ++v) {
      __m256i a = load32(w + 64 * v), b = load32(w + 64 * v + 32);
      const auto field = [&](__m256i mask, size_t at, __m256i* sa, __m256i* sb, __m256i* ta,
                             __m256i* tb) {
        const __m256i x = four(q + 16 * v + at), y = four(p + 16 * v + at);
        const __m256i fa = _mm256_and_si256(a, mask);
        *sa = accumulate_now(*sa, fa, x);
        *ta = accumulate_now(*ta, fa, y);
        const __m256i fb = _mm256_and_si256(b, mask);
        *sb = accumulate_now(*sb, fb, x);
        *tb = accumulate_now(*tb, fb, y);
      };
      field(low, 0, &sa1, &sb1, &ta1, &tb1);
      field(high, 4, &sa4, &sb4, &ta4, &tb4);
      a = _mm256_srli_epi16(a, 4);
      b = _mm256_srli_epi16(b, 4);
      field(low, 8, &sa1, &sb1, &ta1, &tb1);
      field(high, 12, &sa4, &sb4, &ta4, &tb4);
    }
    const auto add = [&](__m256i* total, __m256i x1, __m256i x4) {
      *total = _mm256_add_epi32(
          *total, _mm256_add_epi32(_mm256_madd_epi16(x1, times4), _mm256_madd_epi16(x4, one)));
    };
    add(&first->a, sa1, sa4);
    add(&first->b, sb1, sb4);
    add(&second->a, ta1, ta4);
    add(&second->b, tb1, tb4);
  }
  *first = {_mm256_srai_epi32(first->a, 2), _mm256_srai_epi32(first->b, 2)};
  *second = {_mm256_srai_epi32(second->a, 2), _mm256_srai_epi32(second->b, 2)};
}

/// N activation rows, two at a time, from the packed bytes to the products in registers.
template <class Layout, int N>
void direct_product(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, float* y,
                    size_t y_stride) {
  constexpr size_t kAcc = 8 * kRows;
  alignas(64) float acc[N * kAcc];
  for (size_t r = 0; r < n_rows; r += kRows) {
    for (float& v : acc)
      v = 0.0F;
    for (size_t g = 0; g < k / Layout::kGroup; ++g, tiles += Layout::kBytes) {
      for (size_t i = 0; i < Layout::kBytes; i += 64)
        prefetch(tiles + kAhead + i);
      const size_t at = g * Layout::kGroup;
      const auto add = [&](size_t n, Sums sums) {
        add_group(acc + n * kAcc + g % 8 * kRows, sums, tiles + Layout::kBytes - 2 * kRows,
                  act[n].isum[g], act[n].scale[g]);
      };
      for (size_t n = 0; n + 2 <= N; n += 2) {
        Sums first, second;
        group_sums2(Layout{}, tiles, act[n].q + at, act[n + 1].q + at, &first, &second);
        add(n, first);
        add(n + 1, second);
      }
      if constexpr (N % 2 == 1) add(N - 1, group_sums(Layout{}, tiles, act[N - 1].q + at));
    }
    for (size_t n = 0; n < N; ++n)
      store_rows(acc + n * kAcc, y + n * y_stride + r, n_rows - r < kRows ? n_rows - r : kRows);
  }
}

template <class Layout>
void few_or_many(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, size_t n_act,
                 float* y, size_t y_stride, void* scratch) {
  if (n_act == 2) return direct_product<Layout, 2>(tiles, n_rows, k, act, y, y_stride);
  if (n_act == 3) return direct_product<Layout, 3>(tiles, n_rows, k, act, y, y_stride);
  gemm<Layout>(tiles, n_rows, k, act, n_act, y, y_stride, scratch);
}

}  // namespace

void set_packed_products(KernelTable* table) {
  set<TwoBit<64>>(table, kIntQ2_0);
  set<TwoBit<128>>(table, kIntPQ2_0);
  set<TwoBit<128>>(table, kIntTQ2_0);
  table->packed[kIntQ2_0].gemm = few_or_many<TwoBit<64>>;
  table->packed[kIntPQ2_0].gemm = table->packed[kIntTQ2_0].gemm = few_or_many<TwoBit<128>>;
}

}  // namespace ts::avx2
