/// The bijection between bytes and printable characters that byte-level BPE vocabularies are
/// written in: 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF stand for themselves, the other 68 bytes, in
/// increasing order, for U+0100 onward. So a space is U+0120 and a newline U+010A.
/// Source: the GPT-2 vocabulary (Radford et al., 2019).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ts {

/// The character of a byte.
char32_t byte_to_char(uint8_t byte) noexcept;
/// The byte of a character, or nothing for a character outside the map.
std::optional<uint8_t> char_to_byte(char32_t c) noexcept;

/// Bytes to the form of the vocabulary, as UTF-8.
std::string to_byte_level(std::string_view bytes);
/// The inverse; characters outside the map keep their UTF-8 form.
std::string from_byte_level(std::string_view text);

}  // namespace ts
