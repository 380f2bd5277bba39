/// The 64 bytes of 2-bit fields of Q2_K and Q3_K.
///
///   element e = 128*n + 32*g + l (n = 0..1, g = 0..3, l = 0..31) is bits 2g..2g+1 of qs[32*n + l]
///
///   bit   7 6  | 5 4  | 3 2  | 1 0
///   elem  l+96 | l+64 | l+32 |  l       (of half n)
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

/// code_at(e) in 0..3 for e = 0..255.
template <class CodeAt>
void encode_two_bit_quarters(uint8_t (&qs)[64], CodeAt code_at) noexcept {
  for (size_t n = 0; n < 2; ++n) {
    for (size_t l = 0; l < 32; ++l) {
      unsigned byte = 0;
      for (size_t g = 0; g < 4; ++g)
        byte |= static_cast<unsigned>(code_at(128 * n + 32 * g + l)) << (2 * g);
      qs[32 * n + l] = static_cast<uint8_t>(byte);
    }
  }
}

/// Where the 16 elements of sub-block `sub` (elements 16*sub ..) lie: bytes first_byte .. +15, all
/// at the same shift.
struct TwoBitSubBlock {
  size_t first_byte;
  size_t shift;

  static constexpr TwoBitSubBlock of(size_t sub) noexcept {
    return {32 * (sub / 8) + 16 * (sub % 2), 2 * (sub / 2 % 4)};
  }
};

}  // namespace ts
