// Products of ternary tiles by table (layout: Triples in packed_layouts.inc).
//
// Idea: three weights -1, 0, 1 make with three activations one of 27 sums, which are 13 sums, their
// negatives and 0. The 14 sums of every triple of activations are made once per activation row;
// one pshufb then finds those of 32 rows, and psign gives them the weights' sign. A sum of at most
// 381 is looked up in two parts, sum = 27 high + low, each at most 14 in magnitude, so that eight
// triples add up in bytes; maddubs then widens them and multiplies the high part by 27. Base-3
// words need a multiplication per trit: 5.3 vector instructions per 32 weights where this takes
// 3.1, and on processors that run two threads per core, instructions are what PTQ1_0 waits for.
// Several activation rows (up to kTableColumns) share the unpacking of nibbles and signs; for more,
// codes are unpacked to bytes and multiplied as in packed_products.cc.
// Exact: bit for bit the definition in kernel_table.h. The parts of eight triples are at most 112,
// the sum of a group at most 128 * 127.
// Preconditions: those of PackedKernels in kernel_table.h; any alignment.
// Measured (AMD EPYC Zen 3, g++ 12, 2026-11-30, busy machine, `kernel_cycles_bench avx2 5120
// memory`), cycles per 32 weights in cache: one row 1.2, two 2.2, four 4.4, eight 8.3, sixteen 15;
// twice that beside a busy thread on the same core. 5.5 instructions for one row, from memory 1.8
// cycles where reading alone takes 1.8.
#include <immintrin.h>

#include "kernels/x86/avx2/avx2_kernels.h"

namespace ts::avx2 {
namespace {

#include "kernels/x86/formats.inc"
// clang-format off
#include "kernels/x86/packed_layouts.inc"
#include "kernels/x86/avx2/tiles.inc"
#include "kernels/x86/avx2/columns.inc"
#include "kernels/x86/avx2/packed_source.inc"
// clang-format on

constexpr size_t kTileRows = Triples::kTileRows;
constexpr size_t kScalesAt = Triples::kBytes - 2 * kTileRows;

/// Row of a tile that byte `at` of a vector belongs to.
constexpr size_t row_of_byte(size_t at) {
  return at % 2 * 16 + at % 16 / 8 * 8 + at / 16 * 4 + at % 8 / 2;
}

/// One trit (-1, 0, 1) of the triples |d| = 0..13, or of the nine pairs; zeros after them.
template <typename T>
struct alignas(32) Trits {
  T of[16];
};
template <typename T>
constexpr Trits<T> list_trits(int trit, bool pairs) {
  Trits<T> list = {};
  for (int i = 0; i < (pairs ? 9 : 14); ++i) {
    int d = pairs ? i : 13 + i;
    for (int t = 0; t < trit; ++t)
      d /= 3;
    list.of[i] = static_cast<T>(d % 3 - 1);
  }
  return list;
}
constexpr Trits<int16_t> kTripleWords[3] = {
    list_trits<int16_t>(0, false), list_trits<int16_t>(1, false), list_trits<int16_t>(2, false)};
constexpr Trits<int16_t> kPairWords[2] = {list_trits<int16_t>(0, true),
                                          list_trits<int16_t>(1, true)};
constexpr Trits<int8_t> kTripleBytes[3] = {
    list_trits<int8_t>(0, false), list_trits<int8_t>(1, false), list_trits<int8_t>(2, false)};
constexpr Trits<int8_t> kPairBytes[2] = {list_trits<int8_t>(0, true), list_trits<int8_t>(1, true)};

inline __m256i words(const Trits<int16_t>& trits) {
  return load32(trits.of);
}
/// Both halves.
inline __m256i bytes(const Trits<int8_t>& trits) {
  return _mm256_broadcastsi128_si256(load16(trits.of));
}

void make_tables(const int8_t* q, size_t k, int8_t* tables) {
  const __m256i t0 = words(kTripleWords[0]), t1 = words(kTripleWords[1]),
                t2 = words(kTripleWords[2]);
  const __m256i p0 = words(kPairWords[0]), p1 = words(kPairWords[1]);
  // Words in memory: one instruction broadcasts them from there.
  alignas(32) int16_t a[Triples::kGroup];
  const auto times = [](int16_t activation, __m256i trits) {
    return _mm256_sign_epi16(_mm256_set1_epi16(activation), trits);
  };
  const auto put = [&](__m256i sums) {
    // 1214 / 2^15 = 1 / 26.992: the high part is the nearest or next to it, the low at most 14.
    const __m256i high = _mm256_mulhrs_epi16(sums, _mm256_set1_epi16(1214));
    const __m256i low = _mm256_sub_epi16(sums, _mm256_mullo_epi16(high, _mm256_set1_epi16(27)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(tables),
                        _mm256_permute4x64_epi64(_mm256_packs_epi16(high, low), 0xD8));
    tables += 32;
  };
  for (size_t g = 0; g < k / Triples::kGroup; ++g, q += Triples::kGroup) {
    for (size_t i = 0; i < Triples::kGroup; i += 16)
      _mm256_store_si256(reinterpret_cast<__m256i*>(a + i), _mm256_cvtepi8_epi16(load16(q + i)));
    // The compiler must not read q again instead.
    __asm__ volatile("" : : "r"(a) : "memory");
#pragma GCC unroll 2
    for (size_t j = 0; j < 126; j += 3)
      put(_mm256_add_epi16(_mm256_add_epi16(times(a[j], t0), times(a[j + 1], t1)),
                           times(a[j + 2], t2)));
    put(_mm256_add_epi16(times(a[126], p0), times(a[127], p1)));
  }
}

/// int16 sums of a group for C activation rows: even and odd bytes.
template <int C>
struct WordSums {
  __m256i even[C], odd[C];
};

template <int C>
inline WordSums<C> group_sums(const uint8_t* w, const int8_t* const* tables) {
  const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi8(1);
  WordSums<C> sums;
  __m256i high[C], low[C];
  size_t at = 0;  // bytes into the group's tables
  const auto table = [&](int c, size_t part) {
    return _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(tables[c] + at + part)));
  };
  // The first triple of eight, then the others: their sign byte is in the top bits of `sign`.
  const auto first = [&](__m256i index, __m256i sign) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      high[c] = _mm256_sign_epi8(_mm256_shuffle_epi8(table(c, 0), index), sign);
      low[c] = _mm256_sign_epi8(_mm256_shuffle_epi8(table(c, 16), index), sign);
    }
    at += 32;
  };
  const auto add = [&](__m256i index, __m256i sign) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      high[c] =
          _mm256_add_epi8(high[c], _mm256_sign_epi8(_mm256_shuffle_epi8(table(c, 0), index), sign));
      low[c] =
          _mm256_add_epi8(low[c], _mm256_sign_epi8(_mm256_shuffle_epi8(table(c, 16), index), sign));
    }
    at += 32;
  };
  const auto widen = [&](bool begin) {
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const __m256i even = _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_set1_epi16(27), high[c]),
                                            _mm256_maddubs_epi16(_mm256_set1_epi16(1), low[c]));
      const __m256i odd =
          _mm256_add_epi16(_mm256_maddubs_epi16(_mm256_set1_epi16(27 << 8), high[c]),
                           _mm256_maddubs_epi16(_mm256_set1_epi16(1 << 8), low[c]));
      sums.even[c] = begin ? even : _mm256_add_epi16(sums.even[c], even);
      sums.odd[c] = begin ? odd : _mm256_add_epi16(sums.odd[c], odd);
    }
  };
  const auto even_nibbles = [&](__m256i x) { return _mm256_and_si256(x, nibble); };
  const auto odd_nibbles = [&](__m256i x) {
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble);
  };
  // psign takes a zero for "no value": a bit below the sign's is always set.
  for (size_t octet = 0; octet < Triples::kOctets; ++octet, w += Triples::kOctetBytes) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    if (octet % 2 == 0) prefetch(w + kAhead + 128);
    const __m256i signs = load32(w);
    __m256i sign = _mm256_or_si256(signs, one);
    __m256i x = load32(w + 32);
    first(even_nibbles(x), sign);
    sign = _mm256_add_epi8(sign, sign);
    add(odd_nibbles(x), sign);
    x = load32(w + 64);
    sign = _mm256_add_epi8(sign, sign);
    add(even_nibbles(x), sign);
    sign = _mm256_add_epi8(sign, sign);
    add(odd_nibbles(x), sign);
    x = load32(w + 96);
    sign = _mm256_add_epi8(sign, sign);
    add(even_nibbles(x), sign);
    sign = _mm256_add_epi8(sign, sign);
    add(odd_nibbles(x), sign);
    x = load32(w + 128);
    sign = _mm256_add_epi8(sign, sign);
    add(even_nibbles(x), sign);
    sign = _mm256_or_si256(_mm256_slli_epi16(signs, 7), one);
    add(odd_nibbles(x), sign);
    widen(octet == 0);
  }
  prefetch(w + kAhead);
  prefetch(w + kAhead + 64);
  const __m256i x = load32(w), last = load32(w + 32);
  __m256i sign = _mm256_or_si256(_mm256_slli_epi16(last, 1), one);
  first(even_nibbles(x), sign);
  sign = _mm256_add_epi8(sign, sign);
  add(odd_nibbles(x), sign);
  add(last, one);  // bit 7 is clear, and pshufb ignores bits 4-6
  widen(false);
  return sums;
}

/// acc[g % 8] of 32 rows.
inline void add_words(float* acc, __m256i even, __m256i odd, const uint8_t* scales, float a_scale) {
  const __m256 activation = _mm256_set1_ps(a_scale);
  // `twice` holds each word twice: its upper half becomes the 32-bit value.
  const auto add = [&](size_t row, __m256i twice) {
    const __m256 factor = _mm256_mul_ps(halves(scales + 2 * row), activation);
    const __m256 value = _mm256_cvtepi32_ps(_mm256_srai_epi32(twice, 16));
    _mm256_storeu_ps(acc + row,
                     _mm256_add_ps(_mm256_loadu_ps(acc + row), _mm256_mul_ps(value, factor)));
  };
  add(0, _mm256_unpacklo_epi16(even, even));
  add(8, _mm256_unpackhi_epi16(even, even));
  add(16, _mm256_unpacklo_epi16(odd, odd));
  add(24, _mm256_unpackhi_epi16(odd, odd));
}

/// Adds a group's sums of C activation rows to acc [C, 8, 32].
template <int C>
inline void add_columns(const uint8_t* w, size_t g, const ActRow* act, float* acc) {
  const int8_t* tables[C];
  for (int c = 0; c < C; ++c)
    tables[c] = act[c].tables + g * Triples::kTableBytes;
  const WordSums<C> sums = group_sums<C>(w, tables);
  for (int c = 0; c < C; ++c)
    add_words(acc + (static_cast<size_t>(c) * 8 + g % 8) * kTileRows, sums.even[c], sums.odd[c],
              w + kScalesAt, act[c].scale[g]);
}

/// N activation rows with tables, two at a time: more do not fit the registers.
template <int N>
void table_product(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, float* y,
                   size_t y_stride) {
  const size_t n_groups = k / Triples::kGroup;
  constexpr size_t kAcc = 8 * kTileRows;
  alignas(64) float acc[N * kAcc];
  for (size_t r = 0; r < n_rows; r += kTileRows) {
    for (float& v : acc)
      v = 0.0F;
    for (size_t g = 0; g < n_groups; ++g, tiles += Triples::kBytes) {
      if constexpr (N >= 2) add_columns<2>(tiles, g, act, acc);
      if constexpr (N >= 4) add_columns<2>(tiles, g, act + 2, acc + 2 * kAcc);
      if constexpr (N % 2 == 1) add_columns<1>(tiles, g, act + N - 1, acc + (N - 1) * kAcc);
    }
    for (size_t c = 0; c < N; ++c) {
      for (size_t i = 0; i < kTileRows && r + i < n_rows; i += 8) {
        const auto l = [&](size_t lane) {
          return _mm256_load_ps(acc + c * kAcc + lane * kTileRows + i);
        };
        const __m256 even = _mm256_add_ps(_mm256_add_ps(l(0), l(4)), _mm256_add_ps(l(2), l(6)));
        const __m256 odd = _mm256_add_ps(_mm256_add_ps(l(1), l(5)), _mm256_add_ps(l(3), l(7)));
        alignas(32) float all[8];
        _mm256_store_ps(all, _mm256_add_ps(even, odd));
        float* out = y + c * y_stride + r + i;
        for (size_t j = 0; j < 8 && r + i + j < n_rows; ++j)
          out[j] = all[j];
      }
    }
  }
}

void gemv(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, float* y) {
  table_product<1>(tiles, n_rows, k, act, y, 0);
}

/// One group as bytes: rows 0-15 step after step (64 bytes each), then rows 16-31 at `second`.
inline void unpack_group(const uint8_t* w, uint8_t* steps, uint8_t* second) {
  const __m256i t0 = bytes(kTripleBytes[0]), t1 = bytes(kTripleBytes[1]),
                t2 = bytes(kTripleBytes[2]);
  const __m256i nibble = _mm256_set1_epi8(15), one = _mm256_set1_epi8(1);
  const __m256i in_order =
      _mm256_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15,  //
                       0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  const auto load = [&](const uint8_t* p) { return _mm256_shuffle_epi8(load32(p), in_order); };
  // Columns of a few triples, until four of them make a step.
  __m256i columns[12];
  const auto codes = [&](__m256i* out, __m256i index, __m256i sign) {
    out[0] = _mm256_add_epi8(_mm256_sign_epi8(_mm256_shuffle_epi8(t0, index), sign), one);
    out[1] = _mm256_add_epi8(_mm256_sign_epi8(_mm256_shuffle_epi8(t1, index), sign), one);
    out[2] = _mm256_add_epi8(_mm256_sign_epi8(_mm256_shuffle_epi8(t2, index), sign), one);
  };
  const auto step = [&](const __m256i* v) {
    const __m256i ab_low = _mm256_unpacklo_epi8(v[0], v[1]);
    const __m256i ab_high = _mm256_unpackhi_epi8(v[0], v[1]);
    const __m256i cd_low = _mm256_unpacklo_epi8(v[2], v[3]);
    const __m256i cd_high = _mm256_unpackhi_epi8(v[2], v[3]);
    store_step(steps, _mm256_unpacklo_epi16(ab_low, cd_low));
    store_step(steps + 32, _mm256_unpackhi_epi16(ab_low, cd_low));
    store_step(second, _mm256_unpacklo_epi16(ab_high, cd_high));
    store_step(second + 32, _mm256_unpackhi_epi16(ab_high, cd_high));
    steps += 64;
    second += 64;
  };
  for (size_t octet = 0; octet < Triples::kOctets; ++octet, w += Triples::kOctetBytes) {
    prefetch(w + kAhead);
    prefetch(w + kAhead + 64);
    if (octet % 2 == 0) prefetch(w + kAhead + 128);
    __m256i signs = load(w);
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; ++half) {
#pragma GCC unroll 2
      for (size_t i = 0; i < 2; ++i) {
        const __m256i x = load(w + 32 + 64 * half + 32 * i);
        codes(columns + 6 * i, _mm256_and_si256(x, nibble), _mm256_or_si256(signs, one));
        signs = _mm256_add_epi8(signs, signs);
        codes(columns + 6 * i + 3, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble),
              _mm256_or_si256(signs, one));
        signs = _mm256_add_epi8(signs, signs);
      }
      step(columns);
      step(columns + 4);
      step(columns + 8);
    }
  }
  prefetch(w + kAhead);
  const __m256i x = load(w), last = load(w + 32);
  codes(columns, _mm256_and_si256(x, nibble), _mm256_or_si256(_mm256_slli_epi16(last, 1), one));
  codes(columns + 3, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble),
        _mm256_or_si256(_mm256_slli_epi16(last, 2), one));
  columns[6] = _mm256_add_epi8(_mm256_shuffle_epi8(bytes(kPairBytes[0]), last), one);
  columns[7] = _mm256_add_epi8(_mm256_shuffle_epi8(bytes(kPairBytes[1]), last), one);
  step(columns);
  step(columns + 4);
}

/// Columns of a tile that are unpacked at a time; a single group for few activation rows, so that
/// reading ahead goes on evenly while others are multiplied.
constexpr size_t kUnpackedGroups = 1024 / Triples::kGroup;
constexpr size_t kFewColumns = 16;

struct Unpacked {
  alignas(64) uint8_t steps[2][kUnpackedGroups * Triples::kGroup * kRows];
  float acc[2][kPackedColumns * 8 * kRows];
};
static_assert(sizeof(Unpacked) <= kPackedScratchBytes);

/// All activation rows, N at a time, then the rest.
template <int N>
inline void unpacked_columns(const uint8_t* steps, const uint8_t* scales, size_t first, size_t n,
                             const ActRow* act, size_t n_act, float* acc) {
  size_t m = 0;
  for (; m + N <= n_act; m += N)
    block_product<Triples, N>(steps, scales, first, n, act + m, acc + m * 8 * kRows);
  if constexpr (N > 1)
    unpacked_columns<N / 2>(steps, scales, first, n, act + m, n_act - m, acc + m * 8 * kRows);
}

void gemm(const uint8_t* tiles, size_t n_rows, size_t k, const ActRow* act, size_t n_act, float* y,
          size_t y_stride, void* memory) {
  if (n_act <= kTableColumns && act[0].tables) {
    if (n_act == 1) return table_product<1>(tiles, n_rows, k, act, y, y_stride);
    if (n_act == 2) return table_product<2>(tiles, n_rows, k, act, y, y_stride);
    if (n_act == 3) return table_product<3>(tiles, n_rows, k, act, y, y_stride);
    return table_product<4>(tiles, n_rows, k, act, y, y_stride);
  }
  constexpr size_t kGroup = Triples::kGroup;
  auto* scratch = static_cast<Unpacked*>(memory);
  const size_t n_groups = k / kGroup, tile_bytes = n_groups * Triples::kBytes;
  const size_t per_chunk = n_act <= kFewColumns ? 1 : kUnpackedGroups;
  for (size_t m0 = 0; m0 < n_act; m0 += kPackedColumns) {
    const size_t n_m = n_act - m0 < kPackedColumns ? n_act - m0 : kPackedColumns;
    for (size_t r = 0; r < n_rows; r += kTileRows) {
      const uint8_t* tile = tiles + r / kTileRows * tile_bytes;
      const size_t n_halves = n_rows - r > kRows ? 2 : 1;
      for (size_t h = 0; h < n_halves; ++h) {
        for (size_t i = 0; i < n_m * 8 * kRows; ++i)
          scratch->acc[h][i] = 0.0F;
      }
      for (size_t g = 0; g < n_groups; g += per_chunk) {
        const size_t n = n_groups - g < per_chunk ? n_groups - g : per_chunk;
        const uint8_t* w = tile + g * Triples::kBytes;
        for (size_t i = 0; i < n; ++i)
          unpack_group(w + i * Triples::kBytes, scratch->steps[0] + i * kGroup * kRows,
                       scratch->steps[1] + i * kGroup * kRows);
        for (size_t h = 0; h < n_halves; ++h)
          unpacked_columns<kColumnsAtOnce>(scratch->steps[h], w + kScalesAt + 2 * kRows * h, g, n,
                                           act + m0, n_m, scratch->acc[h]);
      }
      for (size_t h = 0; h < n_halves; ++h) {
        const size_t first = r + h * kRows;
        for (size_t m = 0; m < n_m; ++m)
          store_rows(scratch->acc[h] + m * 8 * kRows, y + (m0 + m) * y_stride + first,
                     n_rows - first < kRows ? n_rows - first : kRows);
      }
    }
  }
}

/// Codes and scales of one row of a tile.
void unpack_row(const uint8_t* tile, size_t row, size_t k, uint8_t* codes, float* scales, float*) {
  alignas(64) uint8_t steps[2][Triples::kGroup * kRows];
  for (size_t g = 0; g < k / Triples::kGroup; ++g, tile += Triples::kBytes) {
    unpack_group(tile, steps[0], steps[1]);
    for (size_t s = 0; s < Triples::kGroup / 4; ++s, codes += 4)
      __builtin_memcpy(codes, steps[row / kRows] + s * 64 + row % kRows * 4, 4);
    scales[g] = half_at(tile + kScalesAt + 2 * row);
  }
}

/// 16 x 16 bytes in each half: v[c] = byte c of every vector, the vectors in order.
inline void transpose16(__m256i v[16]) {
  __m256i t[16];
  const auto pass = [](const __m256i* from, __m256i* to) {
    for (int i = 0; i < 8; ++i) {
      to[2 * i] = _mm256_unpacklo_epi8(from[i], from[i + 8]);
      to[2 * i + 1] = _mm256_unpackhi_epi8(from[i], from[i + 8]);
    }
  };
  pass(v, t);
  pass(t, v);
  pass(v, t);
  pass(t, v);
}

template <class F, int V, int End>
inline void store_codes(const uint8_t* block, uint8_t* out) {
  if constexpr (V < End) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), F::template codes<V>(block));
    store_codes<F, V + 1, End>(block, out + 32);
  }
}

/// Columns of 32 rows (bytes in the layout's order) -> codes of a group.
inline void encode(const __m256i* columns, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  const auto put = [&](size_t at, __m256i v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + at), v);
  };
  const auto three = [](__m256i x) { return _mm256_add_epi8(_mm256_add_epi8(x, x), x); };
  /// d of triple j.
  const auto value = [&](size_t j) {
    const __m256i* c = columns + 3 * j;
    const __m256i d = _mm256_add_epi8(c[0], three(_mm256_add_epi8(c[1], three(c[2]))));
    return _mm256_sub_epi8(d, _mm256_set1_epi8(13));
  };
  const auto two = [](__m256i low, __m256i high) {
    return _mm256_or_si256(_mm256_abs_epi8(low), _mm256_slli_epi16(_mm256_abs_epi8(high), 4));
  };
  for (size_t octet = 0; octet < Triples::kOctets; ++octet, out += Triples::kOctetBytes) {
    __m256i signs = zero;
    for (size_t i = 0; i < 4; ++i) {
      const __m256i a = value(8 * octet + 2 * i), b = value(8 * octet + 2 * i + 1);
      signs = _mm256_sub_epi8(_mm256_add_epi8(signs, signs), _mm256_cmpgt_epi8(zero, a));
      signs = _mm256_sub_epi8(_mm256_add_epi8(signs, signs), _mm256_cmpgt_epi8(zero, b));
      put(32 + 32 * i, two(a, b));
    }
    put(0, signs);
  }
  const __m256i a = value(40), b = value(41);
  put(0, two(a, b));
  const auto bit = [&](__m256i d, char value_of_bit) {
    return _mm256_and_si256(_mm256_cmpgt_epi8(zero, d), _mm256_set1_epi8(value_of_bit));
  };
  put(32, _mm256_or_si256(_mm256_add_epi8(columns[126], three(columns[127])),
                          _mm256_or_si256(bit(a, 0x40), bit(b, 0x20))));
}

template <class F>
void pack(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kBlockElems = kInfo<F>.block_elems, kBlockBytes = kInfo<F>.block_bytes;
  constexpr size_t kGroup = Triples::kGroup;
  static_assert(kBlockElems == kGroup || kBlockElems == 2 * kGroup);
  alignas(64) uint8_t codes[kTileRows][kGroup];
  alignas(64) __m256i columns[kGroup];
  for (size_t g = 0; g < k / kGroup; ++g, tile += Triples::kBytes) {
    for (size_t r = 0; r < kTileRows; ++r) {
      uint8_t* half = tile + kScalesAt + 2 * r;
      if (r >= n_rows) {
        half[0] = half[1] = 0;
        for (uint8_t& code : codes[r])
          code = 1;
        continue;
      }
      const uint8_t* block = w + r * row_bytes + g * kGroup / kBlockElems * kBlockBytes;
      half[0] = block[F::kScaleAt];
      half[1] = block[F::kScaleAt + 1];
      if (kBlockElems == kGroup || g % 2 == 0)
        store_codes<F, 0, 4>(block, codes[r]);
      else if constexpr (kBlockElems == 2 * kGroup)
        store_codes<F, 4, 8>(block, codes[r]);
    }
    for (size_t c = 0; c < kGroup; c += 16) {
      __m256i* v = columns + c;
      for (size_t b = 0; b < 16; ++b) {
        v[b] = _mm256_set_m128i(load16(&codes[row_of_byte(b + 16)][c]),
                                load16(&codes[row_of_byte(b)][c]));
      }
      transpose16(v);
    }
    encode(columns, tile);
  }
}

/// PTQ1_0: its 26 bytes of 32 rows are transposed while five digits are in each. Digit d of bytes
/// 0-15 is column 16 d + byte, of bytes 16-23 column 80 + 8 d + byte, of bytes 24 and 25 column
/// 120 + 2 d + byte.
void pack_ptq1_0(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kBlockBytes = kInfo<PTQ1_0>.block_bytes;
  static_assert(kBlockBytes == 28 && PTQ1_0::kScaleAt == 26);
  alignas(64) __m256i columns[Triples::kGroup];
  // A row that does not exist is a block of zeros again and again.
  alignas(32) static constexpr uint8_t kNothing[kBlockBytes] = {};
  const uint8_t* blocks[kTileRows];
  size_t step[kTileRows];
  for (size_t r = 0; r < kTileRows; ++r) {
    blocks[r] = r < n_rows ? w + r * row_bytes : kNothing;
    step[r] = r < n_rows ? kBlockBytes : 0;
  }
  const auto digits = [&](const __m256i* bytes, size_t first, size_t n_bytes, size_t n_digits) {
    for (size_t b = 0; b < n_bytes; ++b) {
      __m256i x = add_bias(bytes[b]);
      for (size_t d = 0; d < n_digits; ++d) {
        columns[first + d * n_bytes + b] = _mm256_sub_epi8(_mm256_setzero_si256(), minus_digit(x));
        x = times3(x);
      }
    }
  };
  for (size_t g = 0; g < k / Triples::kGroup; ++g, tile += Triples::kBytes) {
    read_ahead(w + kTileRows * row_bytes + g * kTileRows * kBlockBytes, kTileRows * kBlockBytes);
    __m256i v[16];
    const auto transpose_from = [&](size_t first) {
      for (size_t b = 0; b < 16; ++b)
        v[b] = _mm256_set_m128i(load16(blocks[row_of_byte(b + 16)] + first),
                                load16(blocks[row_of_byte(b)] + first));
      transpose16(v);
    };
    transpose_from(0);
    digits(v, 0, 16, 5);
    transpose_from(12);
    digits(v + 4, 80, 8, 5);
    digits(v + 12, 120, 2, 4);
    encode(columns, tile);
    for (size_t r = 0; r < kTileRows; ++r) {
      __builtin_memcpy(tile + kScalesAt + 2 * r, blocks[r] + PTQ1_0::kScaleAt, 2);
      blocks[r] += step[r];
    }
  }
}

template <class F>
void set(KernelTable* table, decltype(PackedKernels::pack) function) {
  PackedKernels& packed = table->packed[F::kFormat];
  packed.group_bytes = Triples::kBytes;
  packed.tile_rows = kTileRows;
  packed.tables = true;
  packed.pack = function;
  packed.unpack_row = unpack_row;
  packed.gemv = gemv;
  packed.gemm = gemm;
}

}  // namespace

void set_triples(KernelTable* table) {
  table->table_bytes = Triples::kTableBytes;
  table->make_tables = make_tables;
  set<PTQ1_0>(table, pack_ptq1_0);
  set<TQ1_0>(table, pack<TQ1_0>);
}

}  // namespace ts::avx2
