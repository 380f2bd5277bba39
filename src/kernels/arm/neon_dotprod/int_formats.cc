// Unpackers of every integer format, and direct products of packed rows with one activation row.
//
// Idea: formats.inc turns a block into 16 codes at a time in registers; sdot multiplies them with
// the activations without storing them. Codes are at most 63 or signed bytes, so signed products
// serve all formats. Four groups are summed across lanes at once, offset, conversion and scales
// cost once per eight. Rows are read one after the other: a thread has one sequential stream.
// Exact: bit for bit the reference; sums are 32 bits wide from the start.
// Preconditions: those of kernel_table.h; any alignment; nothing is read outside the rows.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

#include "kernels/arm/formats.inc"
#include "kernels/arm/reduce.inc"

/// Codes of vectors I .. End - 1 of a block times activations.
template <class F, int I, int End>
inline int32x4_t dot(const uint8_t* block, const int8_t* q, int32x4_t sum) {
  if constexpr (I == End) {
    return sum;
  } else {
    sum = vdotq_s32(sum, product_codes<F, I>(block), vld1q_s8(q));
    return dot<F, I + 1, End>(block, q + 16, sum);
  }
}

/// Lanes whose total is the sum of group G, counted from a block boundary.
template <class F, int G>
inline int32x4_t lanes(const uint8_t* base, const int8_t* q) {
  constexpr int kGroup = kInfo<F>.group, kBlock = kInfo<F>.block_elems;
  constexpr int kAt = G * kGroup, kFirst = kAt % kBlock / 16;
  const uint8_t* block = base + static_cast<size_t>(kAt / kBlock) * kInfo<F>.block_bytes;
  return dot<F, kFirst, kFirst + kGroup / 16>(block, q + kAt, vdupq_n_s32(0));
}

template <class F, int G>
inline int32x4_t four_groups(const uint8_t* base, const int8_t* q) {
  return sums4(lanes<F, G>(base, q), lanes<F, G + 1>(base, q), lanes<F, G + 2>(base, q),
               lanes<F, G + 3>(base, q));
}

/// The f32 accumulators of one row.
template <class F>
struct Accumulator {
  static constexpr bool kHasMinimum = kInfo<F>.min_group != 0;
  static constexpr bool kBy16 = kInfo<F>.group == 16;
  Floats8 acc = zeros8(), low = zeros8();

  /// Eight groups from number g.
  void add(int32x4_t first, int32x4_t second, Floats8 scales, Floats8 minimums, const ActRow& act,
           size_t g) {
    const float* a_scale = (kBy16 ? act.scale16 : act.scale) + g;
    if constexpr (kInfo<F>.offset != 0) {
      const int32_t* isum = (kBy16 ? act.isum16 : act.isum) + g;
      first = vmlsq_n_s32(first, vld1q_s32(isum), kInfo<F>.offset);
      second = vmlsq_n_s32(second, vld1q_s32(isum + 4), kInfo<F>.offset);
    }
    acc.a = add_product(acc.a, vcvtq_f32_s32(first), vmulq_f32(scales.a, vld1q_f32(a_scale)));
    acc.b = add_product(acc.b, vcvtq_f32_s32(second), vmulq_f32(scales.b, vld1q_f32(a_scale + 4)));
    if constexpr (kHasMinimum) {
      const float* fsum = (kBy16 ? act.fsum16 : act.fsum) + g;
      low.a = add_product(low.a, minimums.a, vld1q_f32(fsum));
      low.b = add_product(low.b, minimums.b, vld1q_f32(fsum + 4));
    }
  }
  float result() const {
    if constexpr (kHasMinimum)
      return tree(acc.a, acc.b) + tree(low.a, low.b);
    else
      return tree(acc.a, acc.b);
  }
};

template <size_t Bytes>
inline void read_ahead(const uint8_t* p) {
  constexpr size_t kAhead = 4096;
  for (size_t i = 0; i < Bytes; i += 64)
    __builtin_prefetch(p + kAhead + i);
}

template <class F, int O>
inline void eight_groups(const uint8_t* base, const int8_t* q, const ActRow& act, size_t g,
                         Accumulator<F>& sum) {
  Floats8 scales, minimums = zeros8();
  F::template octet<O>(base, &scales, &minimums);
  sum.add(four_groups<F, 8 * O>(base, q), four_groups<F, 8 * O + 4>(base, q), scales, minimums, act,
          g);
}

template <class F>
inline float row_product(const uint8_t* row, size_t k, const ActRow& act) {
  constexpr size_t kGroup = kInfo<F>.group, kPerBlock = kInfo<F>.block_elems / kGroup;
  constexpr size_t kStep = kPerBlock > 8 ? kPerBlock : 8;  // groups
  constexpr size_t kStepBytes = kStep / kPerBlock * kInfo<F>.block_bytes;
  const size_t n_groups = k / kGroup;
  const int8_t* q = act.q;
  if constexpr (requires { F::kInterleaved; }) q = act.q4;
  Accumulator<F> sum;
  size_t g = 0;
  for (; g + kStep <= n_groups; g += kStep, row += kStepBytes, q += kStep * kGroup) {
    read_ahead<kStepBytes>(row);
    eight_groups<F, 0>(row, q, act, g, sum);
    if constexpr (kStep == 16) eight_groups<F, 1>(row, q, act, g + 8, sum);
  }
  if constexpr (kPerBlock < 8) {
    if (g < n_groups) {  // as eight groups with zeros for the missing ones
      int32_t sums[8] = {};
      float scales[8] = {}, minimums[8] = {};
      const auto one = [&](size_t i, int32x4_t l, int in_block) {
        sums[i] = vaddvq_s32(l);
        scales[i] = F::scale(row, in_block);
        minimums[i] = F::minimum(row, in_block);
      };
      for (size_t i = 0; i < n_groups - g; i += kPerBlock) {
        one(i, lanes<F, 0>(row, q), 0);
        if constexpr (kPerBlock == 2) one(i + 1, lanes<F, 1>(row, q), 1);
        row += kInfo<F>.block_bytes;
        q += kInfo<F>.block_elems;
      }
      sum.add(vld1q_s32(sums), vld1q_s32(sums + 4), {vld1q_f32(scales), vld1q_f32(scales + 4)},
              {vld1q_f32(minimums), vld1q_f32(minimums + 4)}, act, g);
    }
  }
  return sum.result();
}

template <class F>
void gemv(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, const ActRow* act,
          float* y) {
  for (size_t r = 0; r < n_rows; ++r)
    y[r] = row_product<F>(w + r * row_bytes, k, *act);
}

template <class F, int I = 0>
inline void store_codes(const uint8_t* block, uint8_t* codes) {
  vst1q_u8(codes + 16 * I, F::template codes<I>(block));
  if constexpr (16 * (I + 1) < kInfo<F>.block_elems) store_codes<F, I + 1>(block, codes);
}

inline void store8(float* p, Floats8 v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}

template <class F>
void unpack(const uint8_t* row, size_t k, uint8_t* codes, float* scales, float* mins) {
  constexpr size_t kBlock = kInfo<F>.block_elems, kPerBlock = kBlock / kInfo<F>.group;
  constexpr bool kHasMinimum = kInfo<F>.min_group != 0;
  for (size_t b = 0; b < k / kBlock; ++b, row += kInfo<F>.block_bytes) {
    store_codes<F>(row, codes + b * kBlock);
    const size_t at = b * kPerBlock;
    if constexpr (kPerBlock >= 8) {
      const auto octet = [&]<int O>() {
        Floats8 s, m;
        F::template octet<O>(row, &s, &m);
        store8(scales + at + 8 * O, s);
        if constexpr (kHasMinimum) store8(mins + at + 8 * O, m);
      };
      octet.template operator()<0>();
      if constexpr (kPerBlock == 16) octet.template operator()<1>();
    } else {
      for (size_t i = 0; i < kPerBlock; ++i) {
        scales[at + i] = F::scale(row, static_cast<int>(i));
        if constexpr (kHasMinimum) mins[at + i] = F::minimum(row, static_cast<int>(i));
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

}  // namespace ts::neon_dotprod
