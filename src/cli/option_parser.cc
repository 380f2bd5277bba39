#include "cli/option_parser.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "cli/parse_values.h"

namespace ts::cli {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kColumn = 26;  ///< of the help texts

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> out;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream, name, ',');)
    out.push_back(name);
  return out;
}

std::string help_line(const OptionDescription& option) {
  std::string left = "  " + fmt::format("{}", fmt::join(option.names, ", "));
  if (!option.type.empty()) left += " " + option.type;
  const std::string text = wrap_text(option.help, kColumn, kWidth);
  if (left.size() + 2 > kColumn) return left + "\n" + text;
  return left + text.substr(left.size());
}

/// Limits that only the size of the type sets are not worth reading.
std::string not_a_whole_number(int64_t min, int64_t max) {
  if (max < INT32_MAX) return fmt::format("is not a whole number from {} to {}", min, max);
  return fmt::format("is not a whole number of {} or more, or is too large", min);
}

/// What the library says of wrong usage, in our words.
std::string problem_of(const CLI::ParseError& error) {
  const std::string text = error.what();
  // "--prompt: 1 required TEXT missing"
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    return fmt::format("{}: a value is missing", text.substr(0, text.find(':')));
  return text;
}

/// Whether the value of an option is the name of a file, which is never empty.
bool names_a_file(std::string_view names, std::string_view type) {
  return type.starts_with("FILE") || names == "MODEL" || names == "IN" || names == "OUT";
}

}  // namespace

struct OptionParser::Parser {
  CLI::App app;
  CLI::Option* last = nullptr;
  bool help = false, version = false;
};

std::string wrap_text(const std::string& text, size_t indent, size_t width) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string row(indent, ' ');
    for (std::string word; words >> word;) {
      if (row.size() > indent && row.size() + 1 + word.size() > width) {
        out += row + "\n";
        row.assign(indent, ' ');
      }
      if (row.size() > indent) row += ' ';
      row += word;
    }
    out += row + "\n";
  }
  return out;
}

OptionParser::OptionParser(std::string name, std::string summary, std::string examples)
    : name_(std::move(name)),
      summary_(std::move(summary)),
      examples_(std::move(examples)),
      parser_(std::make_unique<Parser>()) {
  parser_->app.set_help_flag();  // ours are options like the others
  parser_->app.allow_extras();   // the library would list them backwards
  group(kOutputGroup);
  flag("--help,-h", parser_->help, "show this help");
  flag("--version", parser_->version, "show the version");
  group("Options");
}

OptionParser::~OptionParser() = default;

void OptionParser::group(std::string heading) {
  group_ = std::move(heading);
}

void OptionParser::checked(const std::string& names, const std::string& type,
                           const std::string& help,
                           std::function<std::string(const std::string&)> accept) {
  options_.push_back({split_names(names), type, help, group_});
  const std::string shown = options_.back().names[0];
  parser_->last = parser_->app.add_option(
      names, [shown, accept = std::move(accept)](const CLI::results_t& results) {
        for (const std::string& text : results) {
          const std::string problem = accept(text);
          if (!problem.empty())
            throw InvalidArgument(fmt::format("{}: {} {}", shown, quote_text(text), problem));
        }
        return true;
      });
  parser_->last->expected(1);
  parser_->last->allow_extra_args(false);
  parser_->last->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void OptionParser::integer(const std::string& names, int64_t& value, int64_t min, int64_t max,
                           const std::string& help) {
  checked(names, "N", help, [&value, min, max](const std::string& text) {
    const auto number = parse_integer(text, min, max);
    if (!number) return not_a_whole_number(min, max);
    value = *number;
    return std::string();
  });
}

void OptionParser::integer(const std::string& names, std::optional<int64_t>& value, int64_t min,
                           int64_t max, const std::string& help) {
  checked(names, "N", help, [&value, min, max](const std::string& text) {
    value = parse_integer(text, min, max);
    return value ? std::string() : not_a_whole_number(min, max);
  });
}

void OptionParser::integer(const std::string& names, int& value, int min, int max,
                           const std::string& help) {
  checked(names, "N", help, [&value, min, max](const std::string& text) {
    const auto number = parse_integer(text, min, max);
    if (!number) return not_a_whole_number(min, max);
    value = static_cast<int>(*number);
    return std::string();
  });
}

void OptionParser::real(const std::string& names, std::optional<float>& value, double min,
                        double max, const std::string& help) {
  checked(names, "X", help, [&value, min, max](const std::string& text) {
    const auto number = parse_real(text);
    if (!number || *number < min || *number > max)
      return fmt::format("is not a number from {} to {}", min, max);
    value = static_cast<float>(*number);
    return std::string();
  });
}

void OptionParser::choice(const std::string& names, std::string& value,
                          std::vector<std::string> choices, const std::string& help) {
  const std::string type = fmt::format("{}", fmt::join(choices, "|"));
  checked(names, type, help, [&value, choices = std::move(choices)](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) == choices.end())
      return fmt::format("is not one of: {}", fmt::join(choices, ", "));
    value = text;
    return std::string();
  });
}

void OptionParser::text(const std::string& names, std::string& value, const std::string& type,
                        const std::string& help) {
  checked(names, type, help, [&value, file = names_a_file(names, type)](const std::string& text) {
    if (file && text.empty()) return std::string("is no file name");
    value = text;
    return std::string();
  });
}

void OptionParser::text(const std::string& names, std::optional<std::string>& value,
                        const std::string& type, const std::string& help) {
  checked(names, type, help, [&value, file = names_a_file(names, type)](const std::string& text) {
    if (file && text.empty()) return std::string("is no file name");
    value = text;
    return std::string();
  });
}

void OptionParser::texts(const std::string& names, std::vector<std::string>& values,
                         const std::string& type, const std::string& help) {
  checked(names, type, help, [&values](const std::string& text) {
    values.push_back(text);
    return std::string();
  });
  parser_->last->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void OptionParser::flag(const std::string& names, bool& value, const std::string& help) {
  options_.push_back({split_names(names), "", help, group_});
  parser_->last = parser_->app.add_flag_callback(names, [&value] { value = true; });
}

void OptionParser::counter(const std::string& names, int& value, const std::string& help) {
  options_.push_back({split_names(names), "", help, group_});
  parser_->last = parser_->app.add_flag_function(
      names, [&value](int64_t count) { value = static_cast<int>(std::min<int64_t>(count, 100)); });
}

void OptionParser::required() {
  options_.back().required = true;
  parser_->last->required();
}

ParseOutcome OptionParser::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // the library takes them from the back
  std::string problem;
  try {
    parser_->app.parse(arguments);
    const std::vector<std::string> unknown = parser_->app.remaining();
    if (!unknown.empty())
      problem =
          fmt::format("{} {} not understood; see --help", quote_text(unknown.front()),
                      unknown.size() == 1 ? std::string("is")
                                          : fmt::format("and {} more are", unknown.size() - 1));
  } catch (const CLI::ParseError& error) {
    problem = problem_of(error);
  }
  // Help is given though a required argument is missing.
  if (parser_->help) return ParseOutcome::kHelp;
  if (parser_->version) return ParseOutcome::kVersion;
  if (!problem.empty()) throw InvalidArgument(problem);
  return ParseOutcome::kRun;
}

std::string OptionParser::help() const {
  std::string out = "Usage: " + name_, positionals;
  std::vector<std::string> headings;
  const auto add_heading = [&](const std::string& heading) {
    if (std::find(headings.begin(), headings.end(), heading) == headings.end())
      headings.push_back(heading);
  };
  for (const OptionDescription& option : options_) {
    if (option.positional()) {
      out += option.required ? " " + option.names[0] : " [" + option.names[0] + "]";
      positionals += help_line(option);
    } else if (option.group != kOutputGroup) {
      add_heading(option.group);
    }
  }
  add_heading(kOutputGroup);  // what all commands have comes last
  out += " [OPTIONS]\n\n" + wrap_text(summary_, 0, kWidth);
  if (!positionals.empty()) out += "\nArguments:\n" + positionals;
  for (const std::string& heading : headings) {
    out += "\n" + heading + ":\n";
    for (const OptionDescription& option : options_) {
      if (!option.positional() && option.group == heading) out += help_line(option);
    }
  }
  out += "\nExamples:\n";
  std::istringstream lines(examples_);
  for (std::string line; std::getline(lines, line);)
    out += "  " + line + "\n";
  return out;
}

}  // namespace ts::cli
