/// What an inspection of packed blocks can find; the bits of Codec::inspect.
#pragma once

#include <cstdint>

namespace ts {

enum BlockFinding : uint32_t {
  kFindingNone = 0,
  // Faults: no correct writer produces these.
  kFindingNonFiniteScale = 1u << 0,  ///< a stored scale is infinite or NaN
  kFindingNonFiniteValue = 1u << 1,  ///< a decoded value is infinite or NaN
  kFindingIllegalByte = 1u << 2,     ///< a byte that encodes no list of digits
  // Notes: legal, yet worth telling.
  kFindingNegativeScale = 1u << 8,      ///< a ternary group with a negative scale
  kFindingScaleOnZeros = 1u << 9,       ///< a non-zero scale on a group whose codes are all zero
  kFindingCodesOnZeroScale = 1u << 10,  ///< non-zero codes under a zero scale: they decode to zero
  kFindingCodePlusTwo = 1u << 11,       ///< 2-bit code 3, which means +2 * scale: not ternary
  kFindingNotCanonical = 1u << 12,      ///< encode(decode(block)) gives other bytes
};

inline constexpr uint32_t kFindingFaults =
    kFindingNonFiniteScale | kFindingNonFiniteValue | kFindingIllegalByte;

}  // namespace ts
