/// UTF-8 decoding that never fails: invalid bytes are reported one maximal piece at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ts {

/// One decoded character. For an invalid sequence `valid` is false and `length` is that of the
/// maximal invalid part (Unicode 15, section 3.9, "U+FFFD substitution of maximal subparts").
struct Utf8Char {
  char32_t code_point = 0;
  uint32_t length = 1;  ///< bytes
  bool valid = false;
  /// The text ended inside a sequence that was valid so far.
  bool truncated = false;
};

/// Decodes the character at `position` (< text.size()).
Utf8Char decode_utf8(std::string_view text, size_t position) noexcept;

/// Appends the UTF-8 form of a code point (a scalar value).
void append_utf8(std::string& out, char32_t code_point);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// Appends `bytes` with every invalid part replaced by U+FFFD.
void append_valid_utf8(std::string& out, std::string_view bytes);

bool is_valid_utf8(std::string_view text) noexcept;

}  // namespace ts
