// Products of packed ternary tiles (packed_tiles.inc) with quantized activation rows.
//
// Idea: lane = row. sdot multiplies the codes of four rows with four activations named by their
// place in a register. One activation row: codes go from the packed bytes to sdot in registers;
// two-bit fields are taken without shifts where that fits a signed byte, their sums (1, 4 and 16
// times the true ones) are shifted once per group; base-3 digits come off by a product with 3 and
// two comparisons, whose -1 are summed and negated once. Several rows: groups are unpacked to bytes
// in the first-level cache and multiplied with up to four activation rows at a time.
// Exact: bit for bit the definition in kernel_table.h; 32-bit sums cannot overflow.
// Preconditions: those of PackedKernels in kernel_table.h; any alignment.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

#include "kernels/arm/formats.inc"
#include "kernels/arm/reduce.inc"
// clang-format off: needs the two above.
#include "kernels/arm/packed_tiles.inc"
// clang-format on

inline int8x16_t as_signed(uint8x16_t v) {
  return vreinterpretq_s8_u8(v);
}

inline Sums no_sums() {
  const int32x4_t zero = vdupq_n_s32(0);
  return {{zero, zero, zero, zero}};
}

template <size_t Group>
inline Sums group_sums(TwoBit<Group>, const uint8_t* w, const int8_t* q) {
  Sums by1 = no_sums(), by4 = no_sums(), by16 = no_sums();
#pragma GCC unroll 2
  for (size_t v = 0; v < Group / 16; ++v, w += 64, q += 16) {
    __builtin_prefetch(w + kAhead);
    const int8x16_t a = vld1q_s8(q);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const uint8x16_t x = vld1q_u8(w + 16 * i);
      const auto masked = [&](uint8_t mask) { return as_signed(vandq_u8(x, vdupq_n_u8(mask))); };
      by1.rows[i] = vdotq_laneq_s32(by1.rows[i], masked(3), a, 0);
      by4.rows[i] = vdotq_laneq_s32(by4.rows[i], masked(12), a, 1);
      by16.rows[i] = vdotq_laneq_s32(by16.rows[i], masked(48), a, 2);
      by1.rows[i] = vdotq_laneq_s32(by1.rows[i], as_signed(vshrq_n_u8(x, 6)), a, 3);
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i)
    by1.rows[i] = vaddq_s32(by1.rows[i],
                            vaddq_s32(vshrq_n_s32(by4.rows[i], 2), vshrq_n_s32(by16.rows[i], 4)));
  return by1;
}

/// Activations of a group in registers; step S is lane S % 4 of vector S / 4.
struct Activations128 {
  int8x16_t v[8];
};

/// Minus the sums of steps S .. S + n - 1 of four rows, whose codes are the digits of x.
template <size_t S, size_t n>
inline int32x4_t minus_digits(int32x4_t sum, uint8x16_t x, const Activations128& a) {
  const uint8x16_t above = vaddq_u8(vcgtq_u8(x, vdupq_n_u8(85)), vcgtq_u8(x, vdupq_n_u8(170)));
  sum = vdotq_laneq_s32(sum, as_signed(above), a.v[S / 4], S % 4);
  if constexpr (n > 1)
    return minus_digits<S + 1, n - 1>(sum, vmulq_u8(x, vdupq_n_u8(3)), a);
  else
    return sum;
}

template <size_t Piece>
inline void minus_pieces(Sums& sums, const uint8_t* w, const Activations128& a) {
  if constexpr (Piece < Base3::kPieces) {
    __builtin_prefetch(w + kAhead);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i)
      sums.rows[i] = minus_digits<Piece * Base3::kPieceSteps, Base3::kPieceSteps>(
          sums.rows[i], vld1q_u8(w + 16 * i), a);
    minus_pieces<Piece + 1>(sums, w + Base3::kPieceBytes, a);
  }
}

inline Sums group_sums(Base3, const uint8_t* w, const int8_t* q) {
  Activations128 a;
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i)
    a.v[i] = vld1q_s8(q + 16 * i);
  Sums sums = no_sums();
  minus_pieces<0>(sums, w, a);
  w += Base3::kPieces * Base3::kPieceBytes;
#pragma GCC unroll 2
  for (size_t i = 0; i < 2; ++i) {
    const uint8x16_t x = vld1q_u8(w + 16 * i);
    sums.rows[i] = minus_digits<30, 2>(sums.rows[i], x, a);
    sums.rows[i + 2] = minus_digits<30, 2>(sums.rows[i + 2], vmulq_u8(x, vdupq_n_u8(9)), a);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i)
    sums.rows[i] = vnegq_s32(sums.rows[i]);
  return sums;
}

template <class Layout>
inline void unpack_group(Layout, const uint8_t* w, uint8_t* steps) {
  unpack_steps(Layout{}, w, steps);
}

/// One step of 16 rows times N activation rows, in lane Lane of `a`.
template <int Lane, int N>
inline void add_step(Sums* sums, const uint8_t* codes, const int8x16_t* a) {
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const int8x16_t w = as_signed(vld1q_u8(codes + 16 * i));
#pragma GCC unroll 4
    for (int m = 0; m < N; ++m)
      sums[m].rows[i] = vdotq_laneq_s32(sums[m].rows[i], w, a[m], Lane);
  }
}

constexpr int kColumnsAtOnce = 4;

/// Unpacked groups [first, first + n) of one tile times N activation rows; acc [N, 8, 16].
template <class Layout, int N>
void block_product(const uint8_t* steps, const uint8_t* scales, size_t first, size_t n,
                   const ActRow* act, float* acc) {
  constexpr size_t kGroup = Layout::kGroup;
  for (size_t g = first; g < first + n; ++g, scales += Layout::kBytes) {
    Sums sums[N];
#pragma GCC unroll 4
    for (int m = 0; m < N; ++m)
      sums[m] = no_sums();
    for (size_t at = 0; at < kGroup; at += 16, steps += 256) {
      int8x16_t a[N];
#pragma GCC unroll 4
      for (int m = 0; m < N; ++m)
        a[m] = vld1q_s8(act[m].q + g * kGroup + at);
      add_step<0, N>(sums, steps, a);
      add_step<1, N>(sums, steps + 64, a);
      add_step<2, N>(sums, steps + 128, a);
      add_step<3, N>(sums, steps + 192, a);
    }
    for (int m = 0; m < N; ++m)
      add_group(acc + (static_cast<size_t>(m) * 8 + g % 8) * kRows, sums[m], scales, act[m].isum[g],
                act[m].scale[g]);
  }
}

#include "kernels/packed_products.inc"

}  // namespace

void set_packed_products(KernelTable* table) {
  set_all(table);
}

}  // namespace ts::neon_dotprod
