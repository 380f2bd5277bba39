// Products of unpacked weight rows and quantized activation rows.
//
// Idea: smmla multiplies eight columns of two weight rows with those of two activation rows. The
// four results stay in the lanes of one vector from the first product to the last addition, so no
// lane is ever added to another and scales are two loads each.
// Exact: bit for bit the reference; 32-bit sums cannot overflow; codes are at most 63 or signed
// bytes. A row without a partner is multiplied twice and stored once.
// Preconditions: those of int_tile in kernel_table.h; any alignment.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/i8mm/i8mm_kernels.h"

namespace ts::i8mm {
namespace {

#include "kernels/arm/reduce.inc"

inline int8x16_t eight_of_both(const int8_t* a, const int8_t* b) {
  return vcombine_s8(vld1_s8(a), vld1_s8(b));
}

/// {a, a, b, b}.
inline float32x4_t by_weight_row(const float* a, const float* b) {
  return vcombine_f32(vdup_n_f32(*a), vdup_n_f32(*b));
}
/// {a, b, a, b}.
inline float32x4_t by_activation(const float* a, const float* b) {
  const float32x2_t pair = vset_lane_f32(*b, vdup_n_f32(*a), 1);
  return vcombine_f32(pair, pair);
}
inline int32x4_t by_activation(const int32_t* a, const int32_t* b) {
  const int32x2_t pair = vset_lane_s32(*b, vdup_n_s32(*a), 1);
  return vcombine_s32(pair, pair);
}

/// tree() in every lane.
inline float32x4_t trees(const float32x4_t l[8]) {
  const float32x4_t even = vaddq_f32(vaddq_f32(l[0], l[4]), vaddq_f32(l[2], l[6]));
  return vaddq_f32(even, vaddq_f32(vaddq_f32(l[1], l[5]), vaddq_f32(l[3], l[7])));
}

/// Two rows of a tile: codes, scales, minimums.
struct RowPair {
  const int8_t *w0, *w1;
  const float *scales0, *scales1, *mins0, *mins1;
};

/// {row 0 act 0, row 0 act 1, row 1 act 0, row 1 act 1}.
template <int Group, bool HasMin>
inline float32x4_t four_products(const IntFormatInfo& format, const RowPair& rows, const ActRow& a0,
                                 const ActRow& a1, size_t n_groups, size_t n_mins) {
  const auto scale_of = [](const ActRow& a) { return Group == 16 ? a.scale16 : a.scale; };
  const auto isum_of = [](const ActRow& a) { return Group == 16 ? a.isum16 : a.isum; };
  const float32x4_t zero = vdupq_n_f32(0.0F);
  float32x4_t acc[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
  for (size_t g = 0; g < n_groups; ++g) {
    int32x4_t sum = vdupq_n_s32(0);
#pragma GCC unroll 4
    for (size_t i = g * Group; i < (g + 1) * Group; i += 8)
      sum = vmmlaq_s32(sum, eight_of_both(rows.w0 + i, rows.w1 + i),
                       eight_of_both(a0.q + i, a1.q + i));
    sum = vmlsq_n_s32(sum, by_activation(isum_of(a0) + g, isum_of(a1) + g), format.offset);
    const float32x4_t factor = vmulq_f32(by_weight_row(rows.scales0 + g, rows.scales1 + g),
                                         by_activation(scale_of(a0) + g, scale_of(a1) + g));
    acc[g % 8] = add_product(acc[g % 8], vcvtq_f32_s32(sum), factor);
  }
  if constexpr (!HasMin) return trees(acc);
  const auto fsum_of = [&](const ActRow& a) { return format.min_group == 16 ? a.fsum16 : a.fsum; };
  float32x4_t low[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
  for (size_t j = 0; j < n_mins; ++j)
    low[j % 8] = add_product(low[j % 8], by_weight_row(rows.mins0 + j, rows.mins1 + j),
                             by_activation(fsum_of(a0) + j, fsum_of(a1) + j));
  return vaddq_f32(trees(acc), trees(low));
}

template <int Group, bool HasMin>
void tile_kernel(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act,
                 size_t n_act, float* y, size_t y_stride) {
  const size_t n_groups = tile->k / Group;
  const size_t n_mins = HasMin ? tile->k / format->min_group : 0;
  const auto codes = [&](size_t r) {
    return reinterpret_cast<const int8_t*>(tile->codes + r * tile->code_stride);
  };
  const auto scales = [&](size_t r) { return tile->scales + r * tile->scale_stride; };
  const auto mins = [&](size_t r) { return HasMin ? tile->mins + r * tile->min_stride : nullptr; };
  // A block of activation rows stays in the first-level cache while the weight rows pass by.
  constexpr size_t kBlockBytes = 16384;
  const size_t block = tile->k < kBlockBytes / 2 ? kBlockBytes / tile->k / 2 * 2 : 2;
  for (size_t first = 0; first < n_act; first += block) {
    const size_t last = first + block < n_act ? first + block : n_act;
    for (size_t r = 0; r < tile->n_rows; r += 2) {
      const size_t s = r + 1 < tile->n_rows ? r + 1 : r;
      const RowPair rows = {codes(r), codes(s), scales(r), scales(s), mins(r), mins(s)};
      for (size_t m = first; m < last; m += 2) {
        const size_t n = m + 1 < last ? m + 1 : m;
        const float32x4_t out =
            four_products<Group, HasMin>(*format, rows, act[m], act[n], n_groups, n_mins);
        y[m * y_stride + r] = vgetq_lane_f32(out, 0);
        if (n > m) y[n * y_stride + r] = vgetq_lane_f32(out, 1);
        if (s > r) y[m * y_stride + s] = vgetq_lane_f32(out, 2);
        if (n > m && s > r) y[n * y_stride + s] = vgetq_lane_f32(out, 3);
      }
    }
  }
}

void int_tile(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act, size_t n_act,
              float* y, size_t y_stride) {
  const bool has_min = format->min_group != 0;
  const auto call = [&](auto kernel) { kernel(format, tile, act, n_act, y, y_stride); };
  switch (format->group) {
    case 16:
      return has_min ? call(tile_kernel<16, true>) : call(tile_kernel<16, false>);
    case 32:
      return has_min ? call(tile_kernel<32, true>) : call(tile_kernel<32, false>);
    case 64:
      return call(tile_kernel<64, false>);
    default:
      return call(tile_kernel<128, false>);
  }
}

}  // namespace

void set_int_tile(KernelTable* table) {
  table->int_tile = int_tile;
}

}  // namespace ts::i8mm
