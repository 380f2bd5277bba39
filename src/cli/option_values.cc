#include "cli/option_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quote_text.h"

namespace ts::cli {
namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) noexcept {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

/// An option whose text goes through `accept`, which says what is wrong or gives an empty string.
CLI::Option* add_checked(CLI::App& app, const std::string& names, const std::string& type,
                         const std::string& help,
                         std::function<std::string(const std::string&)> accept) {
  CLI::Option* option = app.add_option(
      names,
      [names, accept = std::move(accept)](const CLI::results_t& results) {
        for (const std::string& text : results) {
          const std::string problem = accept(text);
          if (!problem.empty())
            throw CLI::ValidationError(fmt::format("{}: {} {}", names, quote_text(text), problem));
        }
        return true;
      },
      help);
  option->type_name(type);
  option->expected(1);
  option->allow_extra_args(false);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  return option;
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

CLI::Option* add_integer(CLI::App& app, const std::string& names, int64_t& value, int64_t min,
                         int64_t max, const std::string& help) {
  return add_checked(app, names, "N", help, [&value, min, max](const std::string& text) {
    const auto number = parse_integer(text, min, max);
    if (!number) return fmt::format("is not a whole number from {} to {}", min, max);
    value = *number;
    return std::string();
  });
}

CLI::Option* add_integer(CLI::App& app, const std::string& names, std::optional<int64_t>& value,
                         int64_t min, int64_t max, const std::string& help) {
  return add_checked(app, names, "N", help, [&value, min, max](const std::string& text) {
    value = parse_integer(text, min, max);
    return value ? std::string() : fmt::format("is not a whole number from {} to {}", min, max);
  });
}

CLI::Option* add_integer(CLI::App& app, const std::string& names, int& value, int min, int max,
                         const std::string& help) {
  return add_checked(app, names, "N", help, [&value, min, max](const std::string& text) {
    const auto number = parse_integer(text, min, max);
    if (!number) return fmt::format("is not a whole number from {} to {}", min, max);
    value = static_cast<int>(*number);
    return std::string();
  });
}

CLI::Option* add_real(CLI::App& app, const std::string& names, std::optional<float>& value,
                      double min, double max, const std::string& help) {
  return add_checked(app, names, "X", help, [&value, min, max](const std::string& text) {
    const auto number = parse_real(text);
    if (!number || *number < min || *number > max)
      return fmt::format("is not a number from {} to {}", min, max);
    value = static_cast<float>(*number);
    return std::string();
  });
}

CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                        std::vector<std::string> choices, const std::string& help) {
  const std::string type = fmt::format("{}", fmt::join(choices, "|"));
  return add_checked(app, names, type, help,
                     [&value, choices = std::move(choices)](const std::string& text) {
                       if (std::find(choices.begin(), choices.end(), text) == choices.end())
                         return fmt::format("is not one of: {}", fmt::join(choices, ", "));
                       value = text;
                       return std::string();
                     });
}

CLI::Option* add_text(CLI::App& app, const std::string& names, std::string& value,
                      const std::string& type, const std::string& help) {
  return add_checked(app, names, type, help, [&value](const std::string& text) {
    value = text;
    return std::string();
  });
}

CLI::Option* add_text(CLI::App& app, const std::string& names, std::optional<std::string>& value,
                      const std::string& type, const std::string& help) {
  return add_checked(app, names, type, help, [&value](const std::string& text) {
    value = text;
    return std::string();
  });
}

CLI::Option* add_texts(CLI::App& app, const std::string& names, std::vector<std::string>& values,
                       const std::string& type, const std::string& help) {
  return add_checked(app, names, type, help,
                     [&values](const std::string& text) {
                       values.push_back(text);
                       return std::string();
                     })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Option* add_flag(CLI::App& app, const std::string& names, bool& value,
                      const std::string& help) {
  return app.add_flag_callback(
      names, [&value] { value = true; }, help);
}

CLI::Option* add_model_argument(CLI::App& app, std::string& path) {
  return add_text(app, "MODEL", path, "", "a .gguf file (of a split file, the first part)")
      ->required();
}

}  // namespace ts::cli
