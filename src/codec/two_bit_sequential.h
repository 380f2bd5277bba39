/// The block shared by Q2_0 (groups of 64) and PQ2_0 (groups of 128): a scale, then 2-bit codes in
/// element order.
///
///   byte 0..1            f16 d (little-endian)
///   byte 2..2+G/4-1      element j is bits 2*(j%4) .. 2*(j%4)+1 of qs[j/4]
///
///   bit   7 6 | 5 4 | 3 2 | 1 0
///   elem  j+3 | j+2 | j+1 |  j       (j a multiple of 4)
///
/// value = (code - 1) * d: codes 0, 1, 2, 3 mean -d, 0, +d, +2d. Code 3 is legal to read and never
/// written by the encoder.
///
/// Worked example: d = 0.5 and the elements -0.5, 0, 0.5, -0.5 are the codes 0, 1, 2, 0, so
/// qs[0] = 0 | 1 << 2 | 2 << 4 | 0 << 6 = 0x24, and the block starts 00 38 24.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/block_io.h"
#include "codec/ternary_group.h"

namespace ts {

template <size_t kGroupElems>
struct TwoBitSequentialBlock {
  static constexpr size_t kElems = kGroupElems;
  HalfField d;
  uint8_t qs[kGroupElems / 4];

  static void decode(const std::byte* src, float* dst, size_t n_elems) noexcept {
    const auto* blocks = as_blocks<TwoBitSequentialBlock>(src);
    for (size_t b = 0; b < n_elems / kElems; ++b, dst += kElems) {
      const TwoBitSequentialBlock& block = blocks[b];
      const float d = block.d.value();
      for (size_t i = 0; i < sizeof(block.qs); ++i) {
        const int byte = block.qs[i];
        dst[4 * i + 0] = static_cast<float>((byte & 3) - 1) * d;
        dst[4 * i + 1] = static_cast<float>(((byte >> 2) & 3) - 1) * d;
        dst[4 * i + 2] = static_cast<float>(((byte >> 4) & 3) - 1) * d;
        dst[4 * i + 3] = static_cast<float>((byte >> 6) - 1) * d;
      }
    }
  }

  static void encode(const float* src, std::byte* dst, size_t n_elems) noexcept {
    auto* blocks = as_blocks<TwoBitSequentialBlock>(dst);
    for (size_t b = 0; b < n_elems / kElems; ++b, src += kElems) {
      const TernaryScale scale = TernaryScale::of(src, kElems);
      blocks[b].d.set(scale.scale);
      blocks[b].set_codes([&](size_t j) { return scale.code(src[j]); });
    }
  }

  static void pack(const int8_t* codes, const uint16_t* scales, std::byte* dst,
                   size_t n_elems) noexcept {
    auto* blocks = as_blocks<TwoBitSequentialBlock>(dst);
    for (size_t b = 0; b < n_elems / kElems; ++b, codes += kElems) {
      blocks[b].d.set_bits(scales[b]);
      blocks[b].set_codes([&](size_t j) { return codes[j]; });
    }
  }

  static uint32_t inspect(const std::byte* src) noexcept {
    const auto* block = as_blocks<TwoBitSequentialBlock>(src);
    return inspect_two_bit_group(block->d.bits(), block->qs, sizeof(block->qs));
  }

 private:
  template <class CodeAt>
  void set_codes(CodeAt code_at) noexcept {
    for (size_t i = 0; i < sizeof(qs); ++i) {
      unsigned byte = 0;
      for (size_t k = 0; k < 4; ++k)
        byte |= static_cast<unsigned>((code_at(4 * i + k) + 1) & 3) << (2 * k);
      qs[i] = static_cast<uint8_t>(byte);
    }
  }
};

}  // namespace ts
