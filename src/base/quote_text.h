/// Text from files in messages: safe to print on a terminal and of bounded length.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ts {

/// `text` in single quotes. Control characters and bytes that are not UTF-8 show as \xNN; beyond
/// `max_bytes` of input the text is cut and "..." follows the closing quote.
std::string quote_text(std::string_view text, size_t max_bytes = 80);

/// Length of the UTF-8 character at the start of `text` (1..4), or 0 when there is none: empty
/// text, stray or missing continuation bytes, overlong forms, surrogates, values past U+10FFFF.
size_t utf8_char_bytes(std::string_view text) noexcept;
/// Length of the character at the start of `text` when a terminal would act on it instead of
/// showing it: control characters (newline and tab too), marks that turn the direction of text.
/// 0 for any other.
size_t steering_char_bytes(std::string_view text) noexcept;

/// Offset of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text) noexcept;

}  // namespace ts
