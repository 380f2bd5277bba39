// Products of unpacked weight rows and quantized activation rows.
//
// Idea: eight groups at a time. maddubs multiplies unsigned codes with signed activations into
// int16 pairs, madd widens to int32, a transpose-and-add tree turns eight vectors into the eight
// group sums, and everything after (offset, conversion, scales) happens once per eight groups.
// Exact: the int32 group sums. A pair is at most 2 * 63 * 127 = 16002; groups of 64 and 128 (codes
// <= 3) add 2 and 4 pairs before widening (<= 3048); signed bytes go through |w| * sign(a, w), at
// most 2 * 128 * 127 = 32512. The f32 order is that of kernel_table.h, so results equal the
// reference bit for bit.
// Preconditions: those of int_tile in kernel_table.h; any alignment.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, `kernel_cycles_bench avx2 1536`, data in cache):
// 1.4 to 2.0 cycles per 32 products in groups of 16 or 32, 1.0 in groups of 128 (16 to 32 products
// per cycle); the reference needs 13 to 29.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/reduce.inc"

inline __m256i load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

/// int16 pair sums of 32 products.
template <bool Signed>
inline __m256i products(const uint8_t* w, const int8_t* a) {
  const __m256i wv = load(w), av = load(a);
  if constexpr (Signed)
    return _mm256_maddubs_epi16(_mm256_abs_epi8(wv), _mm256_sign_epi8(av, wv));
  else
    return _mm256_maddubs_epi16(wv, av);
}

/// int32 lanes whose total is the dot product of one group (of two groups when Group is 16).
template <int Group, bool Signed>
inline __m256i group_lanes(const uint8_t* w, const int8_t* a) {
  __m256i sum = products<Signed>(w, a);
  if constexpr (Group >= 64) sum = _mm256_add_epi16(sum, products<Signed>(w + 32, a + 32));
  if constexpr (Group == 128) {
    sum = _mm256_add_epi16(sum, products<Signed>(w + 64, a + 64));
    sum = _mm256_add_epi16(sum, products<Signed>(w + 96, a + 96));
  }
  return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

/// Dot products of eight groups.
template <int Group, bool Signed>
inline __m256i eight_groups(const uint8_t* w, const int8_t* a) {
  const auto lanes = [&](int i) {
    constexpr int kStep = Group == 16 ? 32 : Group;
    return group_lanes<Group, Signed>(w + i * kStep, a + i * kStep);
  };
  const __m256i abcd = quad(pair(lanes(0), lanes(1)), pair(lanes(2), lanes(3)));
  if constexpr (Group == 16) {
    // Halves hold even and odd groups: {0, 2, 4, 6, 1, 3, 5, 7}.
    return _mm256_permutevar8x32_epi32(abcd, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  } else {
    return octet(abcd, quad(pair(lanes(4), lanes(5)), pair(lanes(6), lanes(7))));
  }
}

/// The last `n` groups, 1 to 7: as eight with zeros for the rest (n is the same for all rows, so
/// the branches are predicted).
template <int Group, bool Signed>
inline __m256i last_groups(const uint8_t* w, const int8_t* a, size_t n) {
  const __m256i zero = _mm256_setzero_si256();
  const auto lanes = [&](size_t i) {
    return i < n ? group_lanes<Group, Signed>(w + i * Group, a + i * Group) : zero;
  };
  const __m256i abcd = quad(pair(lanes(0), lanes(1)), n > 2 ? pair(lanes(2), lanes(3)) : zero);
  const __m256i efgh =
      n > 4 ? quad(pair(lanes(4), lanes(5)), n > 6 ? pair(lanes(6), zero) : zero) : zero;
  return octet(abcd, efgh);
}

template <int Group, bool Signed, bool HasMin>
void tile_kernel(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act,
                 size_t n_act, float* y, size_t y_stride) {
  const size_t n_groups = tile->k / Group;
  const size_t n_mins = HasMin ? tile->k / format->min_group : 0;
  const __m256i offset = _mm256_set1_epi32(format->offset);
  // A block of activation rows stays in the first-level cache while the weight rows pass by.
  constexpr size_t kBlockBytes = 16384;
  const size_t block = tile->k < kBlockBytes ? kBlockBytes / tile->k : 1;
  for (size_t first = 0; first < n_act; first += block) {
    const size_t last = first + block < n_act ? first + block : n_act;
    for (size_t r = 0; r < tile->n_rows; ++r) {
      const uint8_t* codes = tile->codes + r * tile->code_stride;
      const float* scales = tile->scales + r * tile->scale_stride;
      for (size_t m = first; m < last; ++m) {
        const int8_t* q = act[m].q;
        const float* a_scale = Group == 16 ? act[m].scale16 : act[m].scale;
        const int32_t* isum = Group == 16 ? act[m].isum16 : act[m].isum;
        const float* fsum = HasMin && format->min_group == 16 ? act[m].fsum16 : act[m].fsum;
        __m256 acc = _mm256_setzero_ps();
        const auto add = [&](size_t g, __m256i sums) {
          if constexpr (!Signed && !HasMin)
            sums = _mm256_sub_epi32(sums, _mm256_mullo_epi32(offset, load(isum + g)));
          const __m256 factor =
              _mm256_mul_ps(_mm256_loadu_ps(scales + g), _mm256_loadu_ps(a_scale + g));
          acc = _mm256_add_ps(acc, _mm256_mul_ps(_mm256_cvtepi32_ps(sums), factor));
        };
        size_t g = 0;
        for (; g + 8 <= n_groups; g += 8)
          add(g, eight_groups<Group, Signed>(codes + g * Group, q + g * Group));
        if constexpr (Group != 16) {  // blocks of 256 have whole octets of 16-element groups
          if (g < n_groups)
            add(g, last_groups<Group, Signed>(codes + g * Group, q + g * Group, n_groups - g));
        }
        float result = tree(acc);
        if constexpr (HasMin) {
          const float* mins = tile->mins + r * tile->min_stride;
          __m256 low = _mm256_setzero_ps();
          for (size_t j = 0; j < n_mins; j += 8)  // zero-padded on both sides
            low = _mm256_add_ps(
                low, _mm256_mul_ps(_mm256_loadu_ps(mins + j), _mm256_loadu_ps(fsum + j)));
          result = result + tree(low);
        }
        y[m * y_stride + r] = result;
      }
    }
  }
}

void int_tile(const IntFormatInfo* format, const WeightTile* tile, const ActRow* act, size_t n_act,
              float* y, size_t y_stride) {
  const bool has_min = format->min_group != 0;
  if (format->max_code == 255)
    tile_kernel<32, true, false>(format, tile, act, n_act, y, y_stride);
  else if (format->group == 16)
    (has_min ? tile_kernel<16, false, true> : tile_kernel<16, false, false>)(format, tile, act,
                                                                             n_act, y, y_stride);
  else if (format->group == 32)
    (has_min ? tile_kernel<32, false, true> : tile_kernel<32, false, false>)(format, tile, act,
                                                                             n_act, y, y_stride);
  else if (format->group == 64)
    tile_kernel<64, false, false>(format, tile, act, n_act, y, y_stride);
  else
    tile_kernel<128, false, false>(format, tile, act, n_act, y, y_stride);
}

}  // namespace

void set_int_tile(KernelTable* table) {
  table->int_tile = int_tile;
}

}  // namespace ts::avx2
