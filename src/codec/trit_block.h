/// A whole block of TQ1_0 or PTQ1_0: trit bytes, then one scale.
///
///   byte 0..Q-1      qs[Q], five digits each    (trit_bytes.h says which elements)
///   byte Q..Q+H-1    qh[H], four digits each
///   the last two     f16 d (little-endian)
///
/// value = (trit - 1) * d. Encode: d = max|x|, trit = lround(x / d) + 1.
#pragma once

#include "codec/block_io.h"
#include "codec/trit_bytes.h"

namespace ts {

template <size_t kQsBytes, size_t kQhBytes>
struct TritBlock {
  using Body = TritBytes<kQsBytes, kQhBytes>;
  static constexpr size_t kElems = Body::kElems;
  Body body;
  HalfField d;

  static void decode(const std::byte* src, float* dst, size_t n_elems) noexcept {
    const auto* blocks = as_blocks<TritBlock>(src);
    for (size_t b = 0; b < n_elems / kElems; ++b, dst += kElems)
      blocks[b].body.decode(blocks[b].d.value(), dst);
  }

  static void encode(const float* src, std::byte* dst, size_t n_elems) noexcept {
    auto* blocks = as_blocks<TritBlock>(dst);
    for (size_t b = 0; b < n_elems / kElems; ++b, src += kElems) {
      const TernaryScale scale = TernaryScale::of(src, kElems);
      blocks[b].body.set_codes([&](size_t e) { return scale.code(src[e]); });
      blocks[b].d.set(scale.scale);
    }
  }

  static void pack(const int8_t* codes, const uint16_t* scales, std::byte* dst,
                   size_t n_elems) noexcept {
    auto* blocks = as_blocks<TritBlock>(dst);
    for (size_t b = 0; b < n_elems / kElems; ++b, codes += kElems) {
      blocks[b].body.set_codes([&](size_t e) { return codes[e]; });
      blocks[b].d.set_bits(scales[b]);
    }
  }

  static uint32_t inspect(const std::byte* src) noexcept {
    const auto* block = as_blocks<TritBlock>(src);
    return block->body.inspect(block->d.bits());
  }
};

}  // namespace ts
