// Products of unpacked weight rows and quantized activation rows.
//
// Idea: sdot adds four products to each 32-bit lane; codes are at most 63 or signed bytes, so one
// signed product serves all formats. Eight
// groups are summed across lanes together, so offset, conversion and scales cost once per eight.
// Exact: bit for bit the reference; 32-bit sums cannot overflow.
// Preconditions: those of int_tile in kernel_table.h; any alignment.
// Not measured: no such machine was at hand; checked under emulation.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

#include "kernels/arm/reduce.inc"

struct Lanes8 {
  float32x4_t a = vdupq_n_f32(0.0F), b = vdupq_n_f32(0.0F);
};

template <int Group>
inline int32x4_t group_lanes(const uint8_t* w, const int8_t* a) {
  int32x4_t sum = vdupq_n_s32(0);
#pragma GCC unroll 8
  for (int i = 0; i < Group; i += 16)
    sum = vdotq_s32(sum, vreinterpretq_s8_u8(vld1q_u8(w + i)), vld1q_s8(a + i));
  return sum;
}

/// Sums of groups 0..3 of which the first n exist.
template <int Group>
inline int32x4_t four_groups(const uint8_t* w, const int8_t* a, size_t n) {
  const auto lanes = [&](size_t i) {
    return i < n ? group_lanes<Group>(w + i * Group, a + i * Group) : vdupq_n_s32(0);
  };
  return sums4(lanes(0), lanes(1), lanes(2), lanes(3));
}

template <int Group, bool HasMin>
void tile_kernel(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act,
                 size_t n_act, float* y, size_t y_stride) {
  const size_t n_groups = tile->k / Group;
  const size_t n_mins = HasMin ? tile->k / format->min_group : 0;
  const int32_t offset = format->offset;
  const auto row_product = [&](const uint8_t* w, const float* scales, const float* mins,
                               const ActRow& row) {
    const float* a_scale = Group == 16 ? row.scale16 : row.scale;
    const int32_t* isum = Group == 16 ? row.isum16 : row.isum;
    Lanes8 acc, low;
    const auto add = [&](float32x4_t& lane, int32x4_t sums, size_t g) {
      sums = vmlsq_n_s32(sums, vld1q_s32(isum + g), offset);
      lane = add_product(lane, vcvtq_f32_s32(sums),
                         vmulq_f32(vld1q_f32(scales + g), vld1q_f32(a_scale + g)));
    };
    size_t g = 0;
    const int8_t* q = row.q;
    for (; g + 8 <= n_groups; g += 8, w += 8 * Group, q += 8 * Group) {
      add(acc.a, four_groups<Group>(w, q, 4), g);
      add(acc.b, four_groups<Group>(w + 4 * Group, q + 4 * Group, 4), g + 4);
    }
    if (g < n_groups) {
      const size_t n = n_groups - g;
      add(acc.a, four_groups<Group>(w, q, n), g);
      if (n > 4) add(acc.b, four_groups<Group>(w + 4 * Group, q + 4 * Group, n - 4), g + 4);
    }
    float result = tree(acc.a, acc.b);
    if constexpr (HasMin) {
      const float* fsum = format->min_group == 16 ? row.fsum16 : row.fsum;
      for (size_t j = 0; j < n_mins; j += 8) {
        low.a = add_product(low.a, vld1q_f32(mins + j), vld1q_f32(fsum + j));
        low.b = add_product(low.b, vld1q_f32(mins + j + 4), vld1q_f32(fsum + j + 4));
      }
      result = result + tree(low.a, low.b);
    }
    return result;
  };
  // A block of activation rows stays in the first-level cache while the weight rows pass by.
  constexpr size_t kBlockBytes = 16384;
  const size_t block = tile->k < kBlockBytes ? kBlockBytes / tile->k : 1;
  for (size_t first = 0; first < n_act; first += block) {
    const size_t last = first + block < n_act ? first + block : n_act;
    for (size_t r = 0; r < tile->n_rows; ++r) {
      const uint8_t* w = tile->codes + r * tile->code_stride;
      const float* scales = tile->scales + r * tile->scale_stride;
      const float* mins = HasMin ? tile->mins + r * tile->min_stride : nullptr;
      for (size_t m = first; m < last; ++m)
        y[m * y_stride + r] = row_product(w, scales, mins, act[m]);
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

}  // namespace ts::neon_dotprod
