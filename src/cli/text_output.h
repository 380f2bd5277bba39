/// Small pieces of text formatting shared by the commands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ts::cli {

/// The text with control characters and bytes that are not UTF-8 shown as \xNN, so that names from
/// files cannot steer a terminal. Newlines and tabs stay when `keep_lines`.
std::string printable(std::string_view text, bool keep_lines = false);

/// "98.4 MB", "1.02 GB" (powers of 1000).
std::string human_bytes(uint64_t bytes);
/// "135.2 M", "27.1 B".
std::string human_count(uint64_t count);
/// Thousands separated: "1,290,590".
std::string grouped(uint64_t value);
/// "0.42 s", "3 min 05 s".
std::string human_seconds(double seconds);

/// Left-aligned columns, two spaces between; columns named in `right` are right-aligned. The first
/// row is a heading. Widths count UTF-8 characters.
std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<size_t>& right);

/// Replaces \n, \t, \r, \0, \\, \" and \xNN by the characters they stand for; other backslashes
/// stay. InvalidArgument naming `option` when \x lacks its digits.
std::string unescape(std::string_view text, std::string_view option);

}  // namespace ts::cli
