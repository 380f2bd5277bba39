#include "cli/parse_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace ts::cli {
namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t min, int64_t max) noexcept {
  const auto value = parse_number<int64_t>(text);
  if (!value || *value < min || *value > max) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept {
  return parse_number<uint64_t>(text);
}

std::optional<double> parse_real(std::string_view text) noexcept {
  const auto value = parse_number<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<std::vector<int32_t>> parse_token_ids(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto trim = [&](std::string_view& s) {
    s.remove_prefix(std::min(s.find_first_not_of(kBlank), s.size()));
    s = s.substr(0, s.find_last_not_of(kBlank) + 1);
  };
  trim(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']') {
    text = text.substr(1, text.size() - 2);
    trim(text);
  }
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(", \t\r\n"), text.size());
    const auto id = parse_integer(text.substr(0, end), 0, INT32_MAX);
    if (!id) return std::nullopt;
    ids.push_back(static_cast<int32_t>(*id));
    text.remove_prefix(end);
    trim(text);
    if (!text.empty() && text.front() == ',') {
      text.remove_prefix(1);
      trim(text);
      if (text.empty()) return std::nullopt;
    }
  }
  return ids;
}

}  // namespace ts::cli
