// Products of packed ternary tiles with several activation rows. The layout in memory is that of
// NEON with dot products (packed_tiles.inc).
//
// Idea: smmla multiplies two rows x eight columns of codes with two activation rows, 32 products
// into four sums. Unpacked steps are joined two by two to such pairs of rows; four activation rows
// make sixteen accumulators for the 16 rows of a tile.
// Exact: bit for bit the definition in kernel_table.h; 32-bit sums cannot overflow.
// Preconditions: those of PackedKernels in kernel_table.h; any alignment.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/i8mm/i8mm_kernels.h"

namespace ts::i8mm {
namespace {

#include "kernels/arm/formats.inc"
#include "kernels/arm/reduce.inc"
// clang-format off: needs the two above.
#include "kernels/arm/packed_tiles.inc"
// clang-format on

/// Two steps become 128 bytes: eight pairs of rows, eight columns of the first, then of the second.
template <class Layout>
inline void unpack_group(Layout, const uint8_t* w, uint8_t* steps) {
  unpack_steps(Layout{}, w, steps);
  for (size_t s = 0; s < Layout::kGroup / 8; ++s, steps += 128) {
    uint32x4_t a[4], b[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      a[i] = vreinterpretq_u32_u8(vld1q_u8(steps + 16 * i));
      b[i] = vreinterpretq_u32_u8(vld1q_u8(steps + 64 + 16 * i));
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      vst1q_u8(steps + 32 * i, vreinterpretq_u8_u32(vzip1q_u32(a[i], b[i])));
      vst1q_u8(steps + 32 * i + 16, vreinterpretq_u8_u32(vzip2q_u32(a[i], b[i])));
    }
  }
}

/// Eight columns of 16 rows times two activation rows: {r a0, r a1, r' a0, r' a1} per pair of rows.
struct PairSums {
  int32x4_t pairs[8];
};

constexpr int kColumnsAtOnce = 4;

/// Unpacked groups [first, first + n) of one tile times N activation rows; acc [N, 8, 16].
template <class Layout, int N>
void block_product(const uint8_t* steps, const uint8_t* scales, size_t first, size_t n,
                   const ActRow* act, float* acc) {
  constexpr size_t kGroup = Layout::kGroup;
  constexpr int kPairs = (N + 1) / 2;
  for (size_t g = first; g < first + n; ++g, scales += Layout::kBytes) {
    PairSums sums[kPairs];
#pragma GCC unroll 2
    for (int p = 0; p < kPairs; ++p) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        sums[p].pairs[i] = vdupq_n_s32(0);
    }
    for (size_t at = g * kGroup; at < (g + 1) * kGroup; at += 8, steps += 128) {
      int8x16_t a[kPairs];
#pragma GCC unroll 2
      for (int p = 0; p < kPairs; ++p) {
        // A last row without a partner is multiplied twice.
        const int8x8_t second = vld1_s8(act[2 * p + 1 < N ? 2 * p + 1 : 2 * p].q + at);
        a[p] = vcombine_s8(vld1_s8(act[2 * p].q + at), second);
      }
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(steps + 16 * i));
#pragma GCC unroll 2
        for (int p = 0; p < kPairs; ++p)
          sums[p].pairs[i] = vmmlaq_s32(sums[p].pairs[i], w, a[p]);
      }
    }
    for (int m = 0; m < N; ++m) {
      const int32x4_t* pairs = sums[m / 2].pairs;
      Sums rows;
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i)
        rows.rows[i] = m % 2 == 0 ? vuzp1q_s32(pairs[2 * i], pairs[2 * i + 1])
                                  : vuzp2q_s32(pairs[2 * i], pairs[2 * i + 1]);
      add_group(acc + (static_cast<size_t>(m) * 8 + g % 8) * kRows, rows, scales, act[m].isum[g],
                act[m].scale[g]);
    }
  }
}

/// One activation row stays with NEON's dot products.
template <class Layout>
Sums group_sums(Layout, const uint8_t* w, const int8_t* q) = delete;

#include "kernels/packed_products.inc"

}  // namespace

void set_packed_products(KernelTable* table) {
  table->packed[kIntQ2_0].gemm = gemm<TwoBit<64>>;
  table->packed[kIntPQ2_0].gemm = gemm<TwoBit<128>>;
  table->packed[kIntTQ2_0].gemm = gemm<TwoBit<128>>;
  table->packed[kIntPTQ1_0].gemm = gemm<Base3>;
  table->packed[kIntTQ1_0].gemm = gemm<Base3>;
}

}  // namespace ts::i8mm
