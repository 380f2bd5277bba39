// Products of unpacked weight rows and quantized activation rows, 512 bits wide.
//
// Idea: as the AVX2 kernel (eight groups at a time, then one transpose-and-add tree), with dpbusd
// on 64 codes: no widening steps, half as many instructions.
// Exact: int32 throughout; signed codes are read as code + 128 and the surplus 128 * sum(q) is
// subtracted with the offset. The f32 order is that of kernel_table.h: results equal the reference
// bit for bit.
// Preconditions: those of int_tile in kernel_table.h; any alignment.
// Not measured: no machine with AVX-512 was at hand; checked under emulation.
#include "kernels/x86/avx512_vnni/avx512_vnni_kernels.h"
#include "kernels/x86/intrinsics.h"

namespace ts::avx512_vnni {
namespace {

#include "kernels/x86/reduce.inc"

inline __m256i load32(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

/// int32 lanes of 64 products.
template <bool Signed>
inline __m512i products(__m512i sum, const uint8_t* w, const int8_t* a) {
  __m512i codes = _mm512_loadu_si512(w);
  if constexpr (Signed) codes = _mm512_xor_si512(codes, _mm512_set1_epi8(static_cast<char>(-128)));
  return _mm512_dpbusd_epi32(sum, codes, _mm512_loadu_si512(a));
}

inline __m512i pair512(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

inline __m512i quad512(__m512i ab, __m512i cd) {
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/// Dot products of eight groups, in order.
template <int Group, bool Signed>
inline __m256i eight_groups(const uint8_t* w, const int8_t* a) {
  const __m512i zero = _mm512_setzero_si512();
  const auto vector = [&](int i) {
    if constexpr (Group == 128)
      return products<Signed>(products<Signed>(zero, w + 128 * i, a + 128 * i), w + 128 * i + 64,
                              a + 128 * i + 64);
    else
      return products<Signed>(zero, w + 64 * i, a + 64 * i);
  };
  if constexpr (Group == 16) {
    // A quarter of a vector is a group: quarters i of p hold {g_i, g_(4+i)} twice.
    const __m512i p = pair512(vector(0), vector(1));
    const __m512i sums = quad512(p, p);
    const __m512i order = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 13, 9, 5, 1, 12, 8, 4, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
  } else if constexpr (Group == 32) {
    // A half is a group: quarters hold {g0, g2, g4, g6} in 0 and 1, {g1, g3, g5, g7} in 2 and 3.
    const __m512i r = quad512(pair512(vector(0), vector(1)), pair512(vector(2), vector(3)));
    const __m512i sums = _mm512_add_epi32(r, _mm512_shuffle_i32x4(r, r, 0xB1));
    const __m512i order = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 11, 3, 10, 2, 9, 1, 8, 0);
    return _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, sums));
  } else {
    // A whole vector is a group: add the four quarters.
    const __m512i low = quad512(pair512(vector(0), vector(1)), pair512(vector(2), vector(3)));
    const __m512i high = quad512(pair512(vector(4), vector(5)), pair512(vector(6), vector(7)));
    const __m512i halves = _mm512_add_epi32(_mm512_shuffle_i32x4(low, high, 0x88),
                                            _mm512_shuffle_i32x4(low, high, 0xDD));
    return _mm512_castsi512_si256(_mm512_add_epi32(_mm512_shuffle_i32x4(halves, halves, 0x88),
                                                   _mm512_shuffle_i32x4(halves, halves, 0xDD)));
  }
}

/// The last `n` groups of 32 or more elements, 1 to 7: as eight with zeros for the rest (n is the
/// same for all rows, so the branches are predicted).
template <int Group, bool Signed>
inline __m256i last_groups(const uint8_t* w, const int8_t* a, size_t n) {
  const __m256i zero = _mm256_setzero_si256();
  const auto lanes = [&](size_t i) {
    __m256i sum = zero;
    for (size_t j = 0; i < n && j < Group; j += 32) {
      __m256i codes = load32(w + i * Group + j);
      if constexpr (Signed)
        codes = _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(-128)));
      sum = _mm256_dpbusd_epi32(sum, codes, load32(a + i * Group + j));
    }
    return sum;
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
  const __m256i offset = _mm256_set1_epi32(Signed ? 128 : format->offset);
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
          if constexpr (!HasMin)
            sums = _mm256_sub_epi32(sums, _mm256_mullo_epi32(offset, load32(isum + g)));
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

}  // namespace ts::avx512_vnni
