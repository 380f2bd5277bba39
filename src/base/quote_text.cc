#include "base/quote_text.h"

#include <cstdint>

namespace ts {

size_t utf8_char_bytes(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<unsigned char>(text[i]); };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  uint32_t value = 0, smallest = 0;
  if ((first & 0xE0) == 0xC0) {
    length = 2, value = first & 0x1F, smallest = 0x80;
  } else if ((first & 0xF0) == 0xE0) {
    length = 3, value = first & 0x0F, smallest = 0x800;
  } else if ((first & 0xF8) == 0xF0) {
    length = 4, value = first & 0x07, smallest = 0x10000;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3F);
  }
  if (value < smallest || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
  return length;
}

size_t find_invalid_utf8(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_char_bytes(text.substr(i));
    if (n == 0) return i;
    i += n;
  }
  return std::string_view::npos;
}

std::string quote_text(std::string_view text, size_t max_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  size_t i = 0;
  while (i < text.size() && i < max_bytes) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    const size_t n = utf8_char_bytes(text.substr(i));
    // U+0080..U+009F are control characters too.
    const bool control = c < 0x20 || c == 0x7F ||
                         (n == 2 && c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0);
    if (n == 0 || control) {
      out += "\\x";
      out += kHex[c >> 4];
      out += kHex[c & 15];
      ++i;
      if (n == 2) {
        const unsigned char d = static_cast<unsigned char>(text[i]);
        out += "\\x";
        out += kHex[d >> 4];
        out += kHex[d & 15];
        ++i;
      }
    } else {
      out.append(text.substr(i, n));
      i += n;
    }
  }
  out += '\'';
  if (i < text.size()) out += "...";
  return out;
}

}  // namespace ts
