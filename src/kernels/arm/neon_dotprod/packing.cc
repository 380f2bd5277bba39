// Ternary rows as they lie in a file -> tiles of 16 rows (packed_tiles.inc).
//
// Idea: formats.inc turns blocks into bytes of codes; 4 x 4 transpositions of 32-bit words put the
// rows side by side; then four steps share a byte (two bits) or five (base 3).
// Exact: codes and halves are moved, never changed.
// Preconditions: those of PackedKernels::pack; nothing is read outside the rows.
#include <arm_neon.h>

#include "kernels/arm/neon_dotprod/neon_kernels.h"

namespace ts::neon_dotprod {
namespace {

#include "kernels/arm/formats.inc"
#include "kernels/arm/reduce.inc"
// clang-format off: needs the two above.
#include "kernels/arm/packed_tiles.inc"
// clang-format on

/// Codes of vectors I .. End - 1 of four rows' blocks (null = no such row) as steps.
template <class F, int I, int End>
inline void gather_steps(const uint8_t* const* blocks, uint8_t* steps) {
  if constexpr (I < End) {
    uint32x4_t v[4];
    for (int r = 0; r < 4; ++r)
      v[r] = blocks[r] ? vreinterpretq_u32_u8(F::template codes<I>(blocks[r])) : vdupq_n_u32(0);
    const auto transposed = [&](uint32x4_t a, uint32x4_t b, uint32x4_t c, uint32x4_t d,
                                uint8_t* out) {
      const auto low = [](uint32x4_t x, uint32x4_t y) {
        return vzip1q_u64(vreinterpretq_u64_u32(x), vreinterpretq_u64_u32(y));
      };
      const auto high = [](uint32x4_t x, uint32x4_t y) {
        return vzip2q_u64(vreinterpretq_u64_u32(x), vreinterpretq_u64_u32(y));
      };
      const uint32x4_t ab0 = vzip1q_u32(a, b), ab1 = vzip2q_u32(a, b);
      const uint32x4_t cd0 = vzip1q_u32(c, d), cd1 = vzip2q_u32(c, d);
      vst1q_u8(out, vreinterpretq_u8_u64(low(ab0, cd0)));
      vst1q_u8(out + 64, vreinterpretq_u8_u64(high(ab0, cd0)));
      vst1q_u8(out + 128, vreinterpretq_u8_u64(low(ab1, cd1)));
      vst1q_u8(out + 192, vreinterpretq_u8_u64(high(ab1, cd1)));
    };
    transposed(v[0], v[1], v[2], v[3], steps);
    gather_steps<F, I + 1, End>(blocks, steps + 256);
  }
}

template <size_t Group>
inline void encode(TwoBit<Group>, const uint8_t* steps, uint8_t* out) {
  for (size_t at = 0; at < Group * kRows / 4; at += 16) {
    const uint8_t* s = steps + at / 64 * 256 + at % 64;
    const uint8x16_t low = vorrq_u8(vld1q_u8(s), vshlq_n_u8(vld1q_u8(s + 64), 2));
    const uint8x16_t high = vorrq_u8(vld1q_u8(s + 128), vshlq_n_u8(vld1q_u8(s + 192), 2));
    vst1q_u8(out + at, vorrq_u8(low, vshlq_n_u8(high, 4)));
  }
}

/// ceil(Q 256 / 243) = Q + floor((13 Q + 242) / 243); the division is a product with
/// 17261 = 2^22 / 243 + 0.5, exact for all Q up to 242.
inline uint8x16_t fraction(uint8x16_t q) {
  const auto quotient = [](uint8x8_t x) {
    const uint16x8_t n = vaddq_u16(vmull_u8(x, vdup_n_u8(13)), vdupq_n_u16(242));
    const uint16x4_t low = vshrn_n_u32(vmull_n_u16(vget_low_u16(n), 17261), 16);
    const uint16x4_t high = vshrn_n_u32(vmull_n_u16(vget_high_u16(n), 17261), 16);
    return vshrn_n_u16(vcombine_u16(low, high), 6);
  };
  return vaddq_u8(q, vcombine_u8(quotient(vget_low_u8(q)), quotient(vget_high_u8(q))));
}

inline uint8x16_t append(uint8x16_t number, const uint8_t* digits) {
  return vaddq_u8(vmulq_u8(number, vdupq_n_u8(3)), vld1q_u8(digits));
}

inline void encode(Base3, const uint8_t* steps, uint8_t* out) {
  for (size_t piece = 0; piece < Base3::kPieces; ++piece, out += Base3::kPieceBytes) {
    for (size_t i = 0; i < 64; i += 16) {
      uint8x16_t q = vdupq_n_u8(0);
      for (size_t s = 0; s < Base3::kPieceSteps; ++s)
        q = append(q, steps + 64 * s + i);
      vst1q_u8(out + i, fraction(q));
    }
    steps += Base3::kPieceSteps * 64;
  }
  for (size_t i = 0; i < 32; i += 16) {
    uint8x16_t q = vdupq_n_u8(0);
    for (size_t rows = 0; rows < 64; rows += 32) {
      q = append(q, steps + rows + i);
      q = append(q, steps + 64 + rows + i);
    }
    vst1q_u8(out + i, fraction(vmulq_u8(q, vdupq_n_u8(3))));  // the fifth code is 0
  }
}

template <class F, class Layout>
void pack(const uint8_t* w, size_t row_bytes, size_t n_rows, size_t k, uint8_t* tile) {
  constexpr size_t kGroup = Layout::kGroup;
  constexpr size_t kBlockElems = kInfo<F>.block_elems, kBlockBytes = kInfo<F>.block_bytes;
  constexpr int kVectors = kGroup / 16;
  static_assert(kBlockElems == kGroup || kBlockElems == 2 * kGroup);
  uint8_t steps[kGroup * kRows];
  for (size_t g = 0; g < k / kGroup; ++g, tile += Layout::kBytes) {
    const uint8_t* blocks[kRows];
    for (size_t r = 0; r < kRows; ++r)
      blocks[r] = r < n_rows ? w + r * row_bytes + g * kGroup / kBlockElems * kBlockBytes : nullptr;
    for (size_t quad = 0; quad < 4; ++quad) {
      if (kBlockElems == kGroup || g % 2 == 0)
        gather_steps<F, 0, kVectors>(blocks + 4 * quad, steps + 16 * quad);
      else if constexpr (kBlockElems == 2 * kGroup)
        gather_steps<F, kVectors, 2 * kVectors>(blocks + 4 * quad, steps + 16 * quad);
    }
    encode(Layout{}, steps, tile);
    for (size_t r = 0; r < kRows; ++r) {
      uint8_t* scale = tile + Layout::kBytes - 2 * kRows + 2 * r;
      scale[0] = blocks[r] ? blocks[r][F::kScaleAt] : 0;
      scale[1] = blocks[r] ? blocks[r][F::kScaleAt + 1] : 0;
    }
  }
}

template <class F, class Layout>
void set(KernelTable* table) {
  table->packed[F::kFormat].group_bytes = Layout::kBytes;
  table->packed[F::kFormat].pack = pack<F, Layout>;
}

}  // namespace

void set_packing(KernelTable* table) {
  set<Q2_0, TwoBit<64>>(table);
  set<PQ2_0, TwoBit<128>>(table);
  set<TQ2_0, TwoBit<128>>(table);
  set<PTQ1_0, Base3>(table);
  set<TQ1_0, Base3>(table);
}

}  // namespace ts::neon_dotprod
