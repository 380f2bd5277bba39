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

size_t steering_char_bytes(std::string_view text) noexcept {
  const size_t n = utf8_char_bytes(text);
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (n == 1) return byte(0) < 0x20 || byte(0) == 0x7F ? 1 : 0;
  if (n == 2) return byte(0) == 0xC2 && byte(1) < 0xA0 ? 2 : 0;  // U+0080 to U+009F
  if (n != 3 || byte(0) != 0xE2) return 0;
  // Marks that turn the direction of text: U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069; and
  // line and paragraph separators.
  if (byte(1) == 0x80)
    return byte(2) == 0x8E || byte(2) == 0x8F || (byte(2) >= 0xA8 && byte(2) <= 0xAE) ? 3 : 0;
  return byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9 ? 3 : 0;
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
    const size_t n = utf8_char_bytes(text.substr(i));
    const size_t hidden = n == 0 ? 1 : steering_char_bytes(text.substr(i));
    if (hidden == 0) {
      out.append(text.substr(i, n));
      i += n;
      continue;
    }
    for (const size_t end = i + hidden; i < end; ++i) {
      const auto c = static_cast<unsigned char>(text[i]);
      out += "\\x";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    }
  }
  out += '\'';
  if (i < text.size()) out += "...";
  return out;
}

}  // namespace ts
