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

/// Codes of vectors V .. End - 1 of eight rows' blocks (null = no such row) as steps: `half` 0 or 1
/// of each step's 64 bytes.
template <class F, int V, int End>
inline void gather_steps(const uint8_t* const* blocks, uint8_t* steps, size_t half) {
  if constexpr (V < End) {
    __m256i v[8];
    for (int r = 0; r < 8; ++r)
      v[r] = blocks[r] ? F::template codes<V>(blocks[r]) : _mm256_setzero_si256();
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

inline void encode(Base3, const uint8_t* steps, uint8_t* out) {
  const __m256i zero = _mm256_setzero_si256(), nine = _mm256_set1_epi16(9);
  // 57598 / 8 is a little more than 2^16 (2^16 / 3^10 - 1): the sum below is exact for all Q.
  const __m256i excess = _mm256_set1_epi16(static_cast<short>(57598));
  const auto word = [&](__m256i q) {
    const __m256i more = _mm256_srli_epi16(_mm256_mulhi_epu16(q, excess), 3);
    return _mm256_add_epi16(_mm256_add_epi16(q, more), _mm256_set1_epi16(1));
  };
  for (size_t unit = 0; unit < Base3::kUnits; ++unit, steps += 640, out += Base3::kUnitBytes) {
    for (size_t half = 0; half < 64; half += 32) {
      __m256i x = zero, y = zero;
      for (size_t k = 0; k < 5; ++k) {
        const __m256i d = digit(steps + 128 * k + half);
        x = _mm256_add_epi16(_mm256_mullo_epi16(x, nine), _mm256_unpacklo_epi8(d, zero));
        y = _mm256_add_epi16(_mm256_mullo_epi16(y, nine), _mm256_unpackhi_epi8(d, zero));
      }
      store32(out + half, word(x));
      store32(out + 64 + half, word(y));
    }
  }
  store32(out, _mm256_or_si256(digit(steps), _mm256_slli_epi16(digit(steps + 32), 4)));
}

template <class F>
inline void store_scale(const uint8_t* block, uint8_t* out) {
  out[0] = block ? block[F::kScaleAt] : 0;
  out[1] = block ? block[F::kScaleAt + 1] : 0;
}

template <class F, class Layout>
void pack(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kGroup = Layout::kGroup;
  constexpr size_t kBlockElems = kInfo<F>.block_elems, kBlockBytes = kInfo<F>.block_bytes;
  constexpr int kVectors = kGroup / 32;
  static_assert(kBlockElems == kGroup || kBlockElems == 2 * kGroup);
  alignas(64) uint8_t steps[kGroup * kRows];
  for (size_t g = 0; g < k / kGroup; ++g, tile += Layout::kBytes) {
    const uint8_t* blocks[kRows];
    for (size_t r = 0; r < kRows; ++r)
      blocks[r] = r < n_rows ? w + r * row_bytes + g * kGroup / kBlockElems * kBlockBytes : nullptr;
    for (size_t half = 0; half < 2; ++half) {
      if (kBlockElems == kGroup || g % 2 == 0)
        gather_steps<F, 0, kVectors>(blocks + 8 * half, steps, half);
      else if constexpr (kBlockElems == 2 * kGroup)
        gather_steps<F, kVectors, 2 * kVectors>(blocks + 8 * half, steps, half);
    }
    encode(Layout{}, steps, tile);
    for (size_t r = 0; r < kRows; ++r)
      store_scale<F>(blocks[r], tile + Layout::kBytes - 2 * kRows + 2 * r);
  }
}

template <class F, class Layout>
void set(KernelTable* table) {
  PackedKernels& packed = table->packed[F::kFormat];
  packed.group_bytes = Layout::kBytes;
  packed.tile_rows = kRows;
  packed.tables = false;
  packed.pack = pack<F, Layout>;
}

}  // namespace

void set_packing(KernelTable* table) {
  set<Q2_0, TwoBit<64>>(table);
  set<PQ2_0, TwoBit<128>>(table);
  set<TQ2_0, TwoBit<128>>(table);
}

void set_base3_packing(KernelTable* table) {
  set<PTQ1_0, Base3>(table);
  set<TQ1_0, Base3>(table);
}

}  // namespace ts::avx2
