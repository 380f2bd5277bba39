#include "cli/help_formatter.h"

#include <sstream>

#include <fmt/format.h>

namespace ts::cli {
namespace {

constexpr size_t kWidth = 80;
constexpr size_t kColumn = 26;

std::string option_line(const CLI::Option& option) {
  std::string left = "  ";
  if (option.get_positional()) {
    left += option.get_name(true, false);
  } else {
    for (const std::string& name : option.get_snames())
      left += (left.size() > 2 ? ", -" : "-") + name;
    for (const std::string& name : option.get_lnames())
      left += (left.size() > 2 ? ", --" : "--") + name;
    if (option.get_type_size() != 0 && !option.get_type_name().empty())
      left += " " + option.get_type_name();
  }
  std::string text = wrap_text(option.get_description(), kColumn, kWidth);
  if (left.size() + 2 > kColumn) return left + "\n" + text;
  return left + text.substr(left.size());
}

}  // namespace

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

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string out = "Usage: " + app->get_name();
  std::string positionals;
  for (const CLI::Option* option : app->get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true, false);
    out += option->get_required() ? " " + name : " [" + name + "]";
    positionals += option_line(*option);
  }
  out += " [OPTIONS]\n\n" + wrap_text(app->get_description(), 0, kWidth);
  if (!positionals.empty()) out += "\nArguments:\n" + positionals;
  for (const std::string& group : app->get_groups()) {
    std::string lines;
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group() == group && option->nonpositional()) lines += option_line(*option);
    }
    if (!lines.empty() && !group.empty()) out += "\n" + group + ":\n" + lines;
  }
  if (!app->get_footer().empty()) {
    out += "\nExamples:\n";
    std::istringstream lines(app->get_footer());
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) out += "  " + line + "\n";
    }
  }
  return out;
}

}  // namespace ts::cli
