/// Access to packed blocks. Every block struct is made of bytes only, so it has alignment 1 and may
/// lie anywhere in a mapped file; multi-byte fields are little-endian and read through here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "codec/codec.h"

namespace ts {

/// A little-endian binary16 field inside a block.
struct HalfField {
  uint8_t bytes[2];

  uint16_t bits() const noexcept {
    return static_cast<uint16_t>(bytes[0] | (static_cast<unsigned>(bytes[1]) << 8));
  }
  void set_bits(uint16_t value) noexcept {
    bytes[0] = static_cast<uint8_t>(value & 0xFFu);
    bytes[1] = static_cast<uint8_t>(value >> 8);
  }
  float value() const noexcept { return half_to_float(bits()); }
  /// Stores `value` rounded to nearest even.
  void set(float value) noexcept { set_bits(float_to_half(value)); }
};
static_assert(sizeof(HalfField) == 2 && alignof(HalfField) == 1);

template <class Block>
const Block* as_blocks(const std::byte* src) noexcept {
  static_assert(alignof(Block) == 1);
  return reinterpret_cast<const Block*>(src);
}

template <class Block>
Block* as_blocks(std::byte* dst) noexcept {
  static_assert(alignof(Block) == 1);
  return reinterpret_cast<Block*>(dst);
}

/// Compile-time check of a codec row's numbers; each codec file asserts it for its own. (That the
/// functions fit is the registry test's to check: under g++'s sanitizers the address of a
/// template's function is no constant to compare.)
constexpr bool well_formed(const Codec& c) noexcept {
  const bool geometry = c.block_elems > 0 && c.block_elems <= kMaxBlockElems && c.block_bytes > 0 &&
                        c.block_bytes <= kMaxBlockBytes && c.group_elems <= c.block_elems;
  const bool groups = c.group_elems == 0 || c.block_elems % c.group_elems == 0;
  return geometry && groups && !c.name.empty();
}

}  // namespace ts
