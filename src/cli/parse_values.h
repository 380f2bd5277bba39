/// Values in command-line arguments. All of the text must be the value; nothing else is accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ts::cli {

/// A whole decimal number within [min, max].
std::optional<int64_t> parse_integer(std::string_view text, int64_t min, int64_t max) noexcept;
std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept;
/// A finite decimal number.
std::optional<double> parse_real(std::string_view text) noexcept;
/// "1,2,3" or "1 2 3", optionally in brackets; ids are not negative.
std::optional<std::vector<int32_t>> parse_token_ids(std::string_view text);

}  // namespace ts::cli
