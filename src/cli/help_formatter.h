/// Help pages: usage, arguments, options by group, examples; wrapped at 80 columns.
#pragma once

#include <string>

#include "cli/option_values.h"

namespace ts::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
};

/// Breaks lines at blanks so that none is longer than `width`; every line starts with `indent`
/// blanks.
std::string wrap_text(const std::string& text, size_t indent, size_t width);

}  // namespace ts::cli
