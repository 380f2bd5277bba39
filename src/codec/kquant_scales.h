/// The 12 bytes in which Q4_K and Q5_K keep eight 6-bit scales and eight 6-bit minima.
///
///   bytes 0..3   bits 0..5: scale i        bits 6..7: bits 4..5 of scale i + 4     (i = 0..3)
///   bytes 4..7   bits 0..5: minimum i      bits 6..7: bits 4..5 of minimum i + 4
///   bytes 8..11  bits 0..3: bits 0..3 of scale i + 4    bits 4..7: bits 0..3 of minimum i + 4
///
/// Worked example: scale 4 = 0b10_0101 = 37 and minimum 4 = 0b01_0011 = 19 put 0b10 into the top of
/// byte 0, 0b01 into the top of byte 4, and 0x35 into byte 8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ts {

struct PackedScales6 {
  uint8_t bytes[12];

  struct Values {
    std::array<uint8_t, 8> scale;
    std::array<uint8_t, 8> min;
  };

  Values unpack() const noexcept {
    Values v{};
    for (size_t i = 0; i < 4; ++i) {
      v.scale[i] = bytes[i] & 63;
      v.min[i] = bytes[i + 4] & 63;
      v.scale[i + 4] = static_cast<uint8_t>((bytes[i + 8] & 15) | ((bytes[i] >> 6) << 4));
      v.min[i + 4] = static_cast<uint8_t>((bytes[i + 8] >> 4) | ((bytes[i + 4] >> 6) << 4));
    }
    return v;
  }

  /// scale and min: eight values 0..63 each.
  void pack(const uint8_t* scale, const uint8_t* min) noexcept {
    for (size_t i = 0; i < 4; ++i) {
      bytes[i] = static_cast<uint8_t>(scale[i] | ((scale[i + 4] >> 4) << 6));
      bytes[i + 4] = static_cast<uint8_t>(min[i] | ((min[i + 4] >> 4) << 6));
      bytes[i + 8] = static_cast<uint8_t>((scale[i + 4] & 15) | ((min[i + 4] & 15) << 4));
    }
  }
};
static_assert(sizeof(PackedScales6) == 12);

}  // namespace ts
