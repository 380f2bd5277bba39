/// The 4-bit fields of the 32-element formats (Q4_0, Q4_1, Q5_0, Q5_1) and the fifth-bit word of
/// the latter two.
///
///   qs[16]  byte j: bits 0..3 belong to element j, bits 4..7 to element j + 16
///   qh[4]   one little-endian 32-bit word: bit j is bit 4 of the code of element j
///
/// Worked example: the codes 3 (element 0) and 9 (element 16) make qs[0] = 0x93.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

inline constexpr size_t kNibbleElems = 32;
inline constexpr size_t kNibbleBytes = 16;

/// value_of(code) for the 32 elements.
template <class ValueOf>
void decode_nibble_halves(const uint8_t (&qs)[kNibbleBytes], float* dst,
                          ValueOf value_of) noexcept {
  for (size_t j = 0; j < kNibbleBytes; ++j) {
    dst[j] = value_of(qs[j] & 15);
    dst[j + 16] = value_of(qs[j] >> 4);
  }
}

/// code_at(j) in 0..15.
template <class CodeAt>
void encode_nibble_halves(uint8_t (&qs)[kNibbleBytes], CodeAt code_at) noexcept {
  for (size_t j = 0; j < kNibbleBytes; ++j)
    qs[j] = static_cast<uint8_t>(code_at(j) | (code_at(j + 16) << 4));
}

/// value_of(code) for the 32 elements, with codes of five bits.
template <class ValueOf>
void decode_five_bits(const uint8_t (&qs)[kNibbleBytes], const uint8_t (&qh)[4], float* dst,
                      ValueOf value_of) noexcept {
  const uint32_t high = qh[0] | (static_cast<uint32_t>(qh[1]) << 8) |
                        (static_cast<uint32_t>(qh[2]) << 16) | (static_cast<uint32_t>(qh[3]) << 24);
  for (size_t j = 0; j < kNibbleBytes; ++j) {
    dst[j] = value_of(static_cast<int>((qs[j] & 15u) | (((high >> j) & 1u) << 4)));
    dst[j + 16] = value_of(static_cast<int>((qs[j] >> 4) | (((high >> (j + 16)) & 1u) << 4)));
  }
}

/// code_at(j) in 0..31.
template <class CodeAt>
void encode_five_bits(uint8_t (&qs)[kNibbleBytes], uint8_t (&qh)[4], CodeAt code_at) noexcept {
  uint32_t high = 0;
  for (size_t j = 0; j < kNibbleBytes; ++j) {
    const auto low_elem = static_cast<uint32_t>(code_at(j));
    const auto high_elem = static_cast<uint32_t>(code_at(j + 16));
    qs[j] = static_cast<uint8_t>((low_elem & 15u) | ((high_elem & 15u) << 4));
    high |= (low_elem >> 4) << j;
    high |= (high_elem >> 4) << (j + 16);
  }
  for (size_t i = 0; i < 4; ++i)
    qh[i] = static_cast<uint8_t>((high >> (8 * i)) & 0xFFu);
}

}  // namespace ts
