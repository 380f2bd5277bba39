/// Ternary decoders written the slow way, from the description of the formats and from nothing in
/// src/: digits by long division, one element at a time. They give codes, not values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace ts::slow {

inline unsigned byte_at(const std::vector<std::byte>& bytes, size_t i) {
  return std::to_integer<unsigned>(bytes.at(i));
}

/// The digits of a trit byte: it is ceil(Q * 256 / 243), so Q is the only number 0..242 with
/// Q * 256 in (243 * (byte - 1), 243 * byte].
inline std::vector<int> digits_of(unsigned byte) {
  int q = -1;
  for (int candidate = 0; candidate < 243; ++candidate) {
    const int scaled = candidate * 256;
    if (scaled > 243 * (static_cast<int>(byte) - 1) && scaled <= 243 * static_cast<int>(byte))
      q = candidate;
  }
  if (q < 0) throw std::runtime_error("byte holds no digits");
  std::vector<int> digits(5);
  for (size_t n = 5; n-- > 0; q /= 3)
    digits[n] = q % 3;
  return digits;
}

/// Byte and digit of element e of a block.
struct Place {
  size_t byte;
  size_t digit;
};

inline Place place_in_ptq1_0(size_t e) {
  if (e < 80) return {e % 16, e / 16};
  if (e < 120) return {16 + (e - 80) % 8, (e - 80) / 8};
  return {24 + (e - 120) % 2, (e - 120) / 2};
}

inline Place place_in_tq1_0(size_t e) {
  if (e < 160) return {e % 32, e / 32};
  if (e < 240) return {32 + (e - 160) % 16, (e - 160) / 16};
  return {48 + (e - 240) % 4, (e - 240) / 4};
}

/// Codes of one block of a ternary format, by its name.
inline std::vector<int> codes_of(std::string_view format, const std::vector<std::byte>& block) {
  std::vector<int> codes;
  if (format == "ptq1_0" || format == "tq1_0") {
    const size_t n = format == "ptq1_0" ? 128 : 256;
    for (size_t e = 0; e < n; ++e) {
      const Place p = format == "ptq1_0" ? place_in_ptq1_0(e) : place_in_tq1_0(e);
      codes.push_back(digits_of(byte_at(block, p.byte)).at(p.digit) - 1);
    }
  } else if (format == "pq2_0" || format == "q2_0") {
    const size_t n = format == "pq2_0" ? 128 : 64;
    for (size_t e = 0; e < n; ++e) {
      unsigned byte = byte_at(block, 2 + e / 4);
      for (size_t k = 0; k < e % 4; ++k)
        byte /= 4;
      codes.push_back(static_cast<int>(byte % 4) - 1);
    }
  } else if (format == "tq2_0") {
    for (size_t e = 0; e < 256; ++e) {
      unsigned byte = byte_at(block, 32 * (e / 128) + e % 32);
      for (size_t k = 0; k < e % 128 / 32; ++k)
        byte /= 4;
      codes.push_back(static_cast<int>(byte % 4) - 1);
    }
  } else {
    throw std::runtime_error("no slow decoder");
  }
  return codes;
}

/// Where the f16 scale of a block starts.
inline size_t scale_offset(std::string_view format, size_t block_bytes) {
  return format == "pq2_0" || format == "q2_0" ? 0 : block_bytes - 2;
}

}  // namespace ts::slow
