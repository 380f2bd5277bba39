#include "text/byte_level.h"

#include <array>

#include "text/utf8.h"

namespace ts {
namespace {

constexpr bool maps_to_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr unsigned kMapped = 256 + 68;

struct Tables {
  std::array<char32_t, 256> to_char{};
  std::array<int16_t, kMapped> to_byte{};
};

constexpr Tables make_tables() {
  Tables t;
  for (auto& b : t.to_byte)
    b = -1;
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t c = maps_to_itself(byte) ? static_cast<char32_t>(byte) : next++;
    t.to_char[byte] = c;
    t.to_byte[c] = static_cast<int16_t>(byte);
  }
  return t;
}

constexpr Tables kTables = make_tables();
static_assert(kTables.to_char[' '] == 0x120 && kTables.to_char['\n'] == 0x10A);
static_assert(kTables.to_char[0xAD] == kMapped - 1);

}  // namespace

char32_t byte_to_char(uint8_t byte) noexcept {
  return kTables.to_char[byte];
}

std::optional<uint8_t> char_to_byte(char32_t c) noexcept {
  if (c >= kMapped || kTables.to_byte[c] < 0) return std::nullopt;
  return static_cast<uint8_t>(kTables.to_byte[c]);
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes)
    append_utf8(out, byte_to_char(static_cast<uint8_t>(b)));
  return out;
}

std::string from_byte_level(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = decode_utf8(text, i);
    const std::optional<uint8_t> byte = c.valid ? char_to_byte(c.code_point) : std::nullopt;
    if (byte) {
      out.push_back(static_cast<char>(*byte));
    } else {
      out.append(text.substr(i, c.length));
    }
    i += c.length;
  }
  return out;
}

}  // namespace ts
