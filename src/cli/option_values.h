/// Options with checked values: a wrong one is a usage error (exit status 2) that names the option,
/// the value and the legal range, whatever was typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace ts::cli {

/// A whole decimal number within [min, max], nothing else around it.
std::optional<int64_t> parse_integer(std::string_view text, int64_t min, int64_t max) noexcept;
std::optional<uint64_t> parse_unsigned(std::string_view text) noexcept;
/// A finite decimal number.
std::optional<double> parse_real(std::string_view text) noexcept;
/// "1,2,3" or "1 2 3", optionally in brackets; ids are not negative.
std::optional<std::vector<int32_t>> parse_token_ids(std::string_view text);

CLI::Option* add_integer(CLI::App& app, const std::string& names, int64_t& value, int64_t min,
                         int64_t max, const std::string& help);
CLI::Option* add_integer(CLI::App& app, const std::string& names, std::optional<int64_t>& value,
                         int64_t min, int64_t max, const std::string& help);
CLI::Option* add_integer(CLI::App& app, const std::string& names, int& value, int min, int max,
                         const std::string& help);
CLI::Option* add_real(CLI::App& app, const std::string& names, std::optional<float>& value,
                      double min, double max, const std::string& help);
/// One of a fixed list of words.
CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value,
                        std::vector<std::string> choices, const std::string& help);
CLI::Option* add_text(CLI::App& app, const std::string& names, std::string& value,
                      const std::string& type, const std::string& help);
CLI::Option* add_text(CLI::App& app, const std::string& names, std::optional<std::string>& value,
                      const std::string& type, const std::string& help);
/// May be given several times, one value each time.
CLI::Option* add_texts(CLI::App& app, const std::string& names, std::vector<std::string>& values,
                       const std::string& type, const std::string& help);
CLI::Option* add_flag(CLI::App& app, const std::string& names, bool& value,
                      const std::string& help);

/// A required positional argument.
CLI::Option* add_model_argument(CLI::App& app, std::string& path);

}  // namespace ts::cli
