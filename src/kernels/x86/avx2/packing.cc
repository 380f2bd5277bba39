// Ternary rows as they lie in a file -> tiles of 16 rows (packed_layouts.inc).
//
// Idea: formats.inc turns blocks into bytes of codes; 8 x 8 transpositions of 32-bit words put the
// rows side by side; then four steps share a vector (two bits) or ten a vector of words (base 3).
// Exact: codes and halves are moved, never changed.
// Preconditions: those of PackedKernels::pack; nothing is read outside the rows.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/formats.inc"
#include "kernels/x86/packed_layouts.inc"
// clang-format off: after the formats.
#include "kernels/x86/avx2/packed_source.inc"
// clang-format on

inline void store32(void* p, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}

/// v[i] = word i of every vector, the vectors in order.
inline void transpose8(__m256i v[8]) {
  const auto two = [](__m256i a, __m256i b, __m256i* low, __m256i* high) {
    *low = _mm256_unpacklo_epi32(a, b);
    *high = _mm256_unpackhi_epi32(a, b);
  };
  __m256i a0, a1, b0, b1, c0, c1, d0, d1;
  two(v[0], v[1], &a0, &a1);
  two(v[2], v[3], &b0, &b1);
  two(v[4], v[5], &c0, &c1);
  two(v[6], v[7], &d0, &d1);
  const __m256i e0 = _mm256_unpacklo_epi64(a0, b0), e1 = _mm256_unpackhi_epi64(a0, b0);
  const __m256i e2 = _mm256_unpacklo_epi64(a1, b1), e3 = _mm256_unpackhi_epi64(a1, b1);
  const __m256i f0 = _mm256_unpacklo_epi64(c0, d0), f1 = _mm256_unpackhi_epi64(c0, d0);
  const __m256i f2 = _mm256_unpacklo_epi64(c1, d1), f3 = _mm256_unpackhi_epi64(c1, d1);
  v[0] = _mm256_permute2x128_si256(e0, f0, 0x20);
  v[1] = _mm256_permute2x128_si256(e1, f1, 0x20);
  v[2] = _mm256_permute2x128_si256(e2, f2, 0x20);
  v[3] = _mm256_permute2x128_si256(e3, f3, 0x20);
  v[4] = _mm256_permute2x128_si256(e0, f0, 0x31);
  v[5] = _mm256_permute2x128_si256(e1, f1, 0x31);
  v[6] = _mm256_permute2x128_si256(e2, f2, 0x31);
  v[7] = _mm256_permute2x128_si256(e3, f3, 0x31);
}

/// Codes of vectors V .. End - 1 of eight rows' blocks as steps: `half` 0 or 1 of each step's 64
/// bytes.
template <class F, int V, int End>
inline void gather_steps(const uint8_t* const* blocks, uint8_t* steps, size_t half) {
  if constexpr (V < End) {
    __m256i v[8];
    for (int r = 0; r < 8; ++r)
      v[r] = F::template codes<V>(blocks[r]);
    transpose8(v);
    for (size_t i = 0; i < 8; ++i)
      store32(steps + i * 64 + half * 32, v[i]);
    gather_steps<F, V + 1, End>(blocks, steps + 512, half);
  }
}

template <size_t Group>
inline void encode(TwoBit<Group>, const uint8_t* steps, uint8_t* out) {
  for (size_t at = 0; at < Group * kRows / 4; at += 32) {
    const uint8_t* s = steps + at / 64 * 256 + at % 64;
    const __m256i low = _mm256_or_si256(load32(s), _mm256_slli_epi16(load32(s + 64), 2));
    const __m256i high = _mm256_or_si256(load32(s + 128), _mm256_slli_epi16(load32(s + 192), 2));
    store32(out + at, _mm256_or_si256(low, _mm256_slli_epi16(high, 4)));
  }
}

/// Base-9 digit of steps 2 k and 2 k + 1.
inline __m256i digit(const uint8_t* steps) {
  const __m256i second = load32(steps + 64);
  return _mm256_add_epi8(load32(steps), _mm256_add_epi8(_mm256_add_epi8(second, second), second));
}

/// floor(Q 2^16 / 3^10) + 1.
inline __m256i base3_word(__m256i q) {
  // 57598 / 8 is a little more than 2^16 (2^16 / 3^10 - 1): the sum below is exact for all Q.
  const __m256i excess = _mm256_set1_epi16(static_cast<short>(57598));
  const __m256i more = _mm256_srli_epi16(_mm256_mulhi_epu16(q, excess), 3);
  return _mm256_add_epi16(_mm256_add_epi16(q, more), _mm256_set1_epi16(1));
}

inline void encode(Base3, const uint8_t* steps, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256(), nine = _mm256_set1_epi16(9);
  for (size_t unit = 0; unit < Base3::kUnits; ++unit, steps += 640, out += Base3::kUnitBytes) {
    for (size_t half = 0; half < 64; half += 32) {
      __m256i x = zero, y = zero;
      for (size_t k = 0; k < 5; ++k) {
        const __m256i d = digit(steps + 128 * k + half);
        x = _mm256_add_epi16(_mm256_mullo_epi16(x, nine), _mm256_unpacklo_epi8(d, zero));
        y = _mm256_add_epi16(_mm256_mullo_epi16(y, nine), _mm256_unpackhi_epi8(d, zero));
      }
      store32(out + half, base3_word(x));
      store32(out + 64 + half, base3_word(y));
    }
  }
  store32(out, _mm256_or_si256(digit(steps), _mm256_slli_epi16(digit(steps + 32), 4)));
}

inline void store_scale(const uint8_t* half, uint8_t* out) {
  __builtin_memcpy(out, half, 2);
}

/// The blocks of 16 rows; a row that does not exist is a block of zeros again and again, which any
/// format here reads as codes and a scale of zero.
struct Rows {
  const uint8_t* block[kRows];
  size_t step[kRows];

  Rows(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t block_bytes) {
    alignas(64) static constexpr uint8_t kNothing[128] = {};
    for (size_t r = 0; r < kRows; ++r) {
      block[r] = r < n_rows ? w + r * row_bytes : kNothing;
      step[r] = r < n_rows ? block_bytes : 0;
    }
  }
  void advance() {
    for (size_t r = 0; r < kRows; ++r)
      block[r] += step[r];
  }
};

/// Any format: codes of all elements as bytes, then the layout's encoding.
template <class F, class Layout>
void pack(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kGroup = Layout::kGroup;
  constexpr size_t kBlockElems = kInfo<F>.block_elems, kBlockBytes = kInfo<F>.block_bytes;
  constexpr int kVectors = kGroup / 32;
  static_assert(kBlockElems == kGroup || kBlockElems == 2 * kGroup);
  alignas(64) uint8_t steps[kGroup * kRows];
  Rows rows(w, row_bytes, n_rows, kBlockBytes);
  for (size_t g = 0; g < k / kGroup; ++g, tile += Layout::kBytes) {
    const bool second = kBlockElems != kGroup && g % 2 != 0;
    for (size_t half = 0; half < 2; ++half) {
      if (!second)
        gather_steps<F, 0, kVectors>(rows.block + 8 * half, steps, half);
      else if constexpr (kBlockElems == 2 * kGroup)
        gather_steps<F, kVectors, 2 * kVectors>(rows.block + 8 * half, steps, half);
    }
    encode(Layout{}, steps, tile);
    for (size_t r = 0; r < kRows; ++r)
      store_scale(rows.block[r] + F::kScaleAt, tile + Layout::kBytes - 2 * kRows + 2 * r);
    if (kBlockElems == kGroup || second) rows.advance();
  }
}

// Formats whose bytes are transposed while still packed: a fifth or a quarter of the work.

/// Two-bit code j of byte p of every 32-bit word <-> code p of byte j.
inline __m256i transpose_pairs(__m256i x) {
  const auto swap = [&](int mask, int distance) {
    const __m256i t = _mm256_and_si256(_mm256_xor_si256(x, _mm256_srli_epi32(x, distance)),
                                       _mm256_set1_epi32(mask));
    x = _mm256_xor_si256(x, _mm256_xor_si256(t, _mm256_slli_epi32(t, distance)));
  };
  swap(0x00CC00CC, 6);
  swap(0x0000F0F0, 12);
  return x;
}

/// Four consecutive codes per byte (PQ2_0, Q2_0): byte s of a row is its part of step s, so that a
/// word of four bytes holds the four steps of one vector.
template <class F, size_t Group>
void pack_pairs(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kBlockBytes = kInfo<F>.block_bytes;
  constexpr int kCodesAt = 2;
  static_assert(kBlockBytes == kCodesAt + Group / 4 && F::kScaleAt == 0);
  Rows rows(w, row_bytes, n_rows, kBlockBytes);
  for (size_t g = 0; g < k / Group; ++g, tile += TwoBit<Group>::kBytes, rows.advance()) {
    read_ahead(w + kRows * row_bytes + g * kRows * kBlockBytes, kRows * kBlockBytes);
    for (size_t half = 0; half < 2; ++half) {
      const uint8_t* const* blocks = rows.block + 8 * half;
      __m256i v[8];
      if constexpr (Group == 128) {
        for (int r = 0; r < 8; ++r)
          v[r] = load32(blocks[r] + kCodesAt);
        transpose8(v);
      } else {
        __m256i a[4];
        for (int r = 0; r < 4; ++r)
          a[r] = _mm256_set_m128i(load16(blocks[r + 4] + kCodesAt), load16(blocks[r] + kCodesAt));
        const __m256i low01 = _mm256_unpacklo_epi32(a[0], a[1]);
        const __m256i low23 = _mm256_unpacklo_epi32(a[2], a[3]);
        const __m256i high01 = _mm256_unpackhi_epi32(a[0], a[1]);
        const __m256i high23 = _mm256_unpackhi_epi32(a[2], a[3]);
        v[0] = _mm256_unpacklo_epi64(low01, low23);
        v[1] = _mm256_unpackhi_epi64(low01, low23);
        v[2] = _mm256_unpacklo_epi64(high01, high23);
        v[3] = _mm256_unpackhi_epi64(high01, high23);
      }
      for (size_t i = 0; i < Group / 16; ++i)
        store32(tile + i * 64 + half * 32, transpose_pairs(v[i]));
    }
    for (size_t r = 0; r < kRows; ++r)
      store_scale(rows.block[r], tile + TwoBit<Group>::kBytes - 2 * kRows + 2 * r);
  }
}

/// Minus the base-9 digit of two steps; both go on to the next digits.
inline __m256i minus_base9(__m256i* first, __m256i* second) {
  const __m256i e = _mm256_add_epi8(minus_digit(*first), times3(minus_digit(*second)));
  *first = times3(*first);
  *second = times3(*second);
  return e;
}

/// Words X and Y of half a unit from the negated base-9 digits of its five pairs of steps.
inline void store_words(const __m256i minus[5], uint8_t* x_out) {
  const __m256i nine_one = _mm256_set1_epi16(0x0109), one_none = _mm256_set1_epi16(0x0001);
  const auto word = [&](__m256i e01, __m256i e23, __m256i e44) {
    const __m256i high =
        _mm256_mullo_epi16(_mm256_maddubs_epi16(nine_one, e01), _mm256_set1_epi16(-729));
    const __m256i middle =
        _mm256_mullo_epi16(_mm256_maddubs_epi16(nine_one, e23), _mm256_set1_epi16(-9));
    return base3_word(
        _mm256_sub_epi16(_mm256_add_epi16(high, middle), _mm256_maddubs_epi16(one_none, e44)));
  };
  store32(x_out,
          word(_mm256_unpacklo_epi8(minus[0], minus[1]), _mm256_unpacklo_epi8(minus[2], minus[3]),
               _mm256_unpacklo_epi8(minus[4], minus[4])));
  store32(x_out + 64,
          word(_mm256_unpackhi_epi8(minus[0], minus[1]), _mm256_unpackhi_epi8(minus[2], minus[3]),
               _mm256_unpackhi_epi8(minus[4], minus[4])));
}

/// PTQ1_0: digit d of bytes 0-15 is element 16 d + byte, of bytes 16-23 element 80 + 8 d + byte, of
/// bytes 24 and 25 element 120 + 2 d + byte; four bytes of a row are its part of a step, digit
/// after digit.
void pack_ptq1_0(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kBlockBytes = kInfo<PTQ1_0>.block_bytes;
  static_assert(kBlockBytes == 28 && PTQ1_0::kScaleAt == 26);
  const __m256i first_two = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13,  //
                                             0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
  Rows rows(w, row_bytes, n_rows, kBlockBytes);
  for (size_t g = 0; g < k / Base3::kGroup; ++g, tile += Base3::kBytes, rows.advance()) {
    read_ahead(w + kRows * row_bytes + g * kRows * kBlockBytes, kRows * kBlockBytes);
    __m256i tail[2], scales[2];
    for (size_t half = 0; half < 2; ++half) {
      const uint8_t* const* blocks = rows.block + 8 * half;
      // Words 0-3 are bytes 0-15, words 4-7 bytes 12-27: the last has bytes 24, 25 and the scale.
      __m256i v[8];
      for (int r = 0; r < 8; ++r)
        v[r] = _mm256_set_m128i(load16(blocks[r] + 12), load16(blocks[r]));
      transpose8(v);
      scales[half] = _mm256_srli_epi32(v[7], 16);
      for (__m256i& x : v)
        x = add_bias(x);
      __m256i e[10];
      for (int d = 0; d < 5; ++d) {
        e[2 * d] = minus_base9(&v[0], &v[1]);
        e[2 * d + 1] = minus_base9(&v[2], &v[3]);
      }
      uint8_t* out = tile + half * 32;
      store_words(e, out);
      store_words(e + 5, out + Base3::kUnitBytes);
      for (int d = 0; d < 5; ++d)
        e[d] = minus_base9(&v[5], &v[6]);
      store_words(e, out + 2 * Base3::kUnitBytes);
      // Elements 120-123 are digits 0 and 1 of both bytes, 124-127 digits 2 and 3.
      const __m256i both = _mm256_shuffle_epi8(v[7], first_two);
      __m256i step30 = _mm256_blend_epi16(both, times3(both), 0xAA);
      __m256i step31 = times3(times3(step30));
      tail[half] = _mm256_sub_epi8(_mm256_setzero_si256(), minus_base9(&step30, &step31));
    }
    uint8_t* out = tile + Base3::kUnits * Base3::kUnitBytes;
    store32(out, _mm256_or_si256(tail[0], _mm256_slli_epi16(tail[1], 4)));
    store32(out + 32, _mm256_permute4x64_epi64(_mm256_packus_epi32(scales[0], scales[1]), 0xD8));
  }
}

template <class F, class Layout>
void set(KernelTable* table, decltype(PackedKernels::pack) function) {
  PackedKernels& packed = table->packed[F::kFormat];
  packed.group_bytes = Layout::kBytes;
  packed.tile_rows = kRows;
  packed.tables = false;
  packed.pack = function;
}

}  // namespace

void set_packing(KernelTable* table) {
  set<Q2_0, TwoBit<64>>(table, pack_pairs<Q2_0, 64>);
  set<PQ2_0, TwoBit<128>>(table, pack_pairs<PQ2_0, 128>);
  set<TQ2_0, TwoBit<128>>(table, pack<TQ2_0, TwoBit<128>>);
}

void set_base3_packing(KernelTable* table) {
  set<PTQ1_0, Base3>(table, pack_ptq1_0);
  set<TQ1_0, Base3>(table, pack<TQ1_0, Base3>);
}

}  // namespace ts::avx2
