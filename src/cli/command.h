/// A subcommand of one of the programs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/console.h"
#include "cli/option_parser.h"

namespace ts::cli {

/// Exit statuses a command returns itself; failures are thrown and get theirs from the error table.
enum ExitStatus : int {
  kSuccess = 0,
  kAnswerIsNo = 1,  ///< the work was done and the answer is no
  kWrongUsage = 2,
  kDoesNotFit = 5,
  kDefect = 70,
  kInterrupted = 130,
  kPipeClosed = 141,  ///< what a shell reports of a program ended by SIGPIPE
};

class Command {
 public:
  /// `name` may have two words ("eval perplexity").
  Command(std::string name, std::string summary, std::string examples)
      : name_(std::move(name)), summary_(std::move(summary)), examples_(std::move(examples)) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  virtual ~Command() = default;

  const std::string& name() const noexcept { return name_; }
  /// One line.
  const std::string& summary() const noexcept { return summary_; }
  /// Shown under "Examples:"; lines without indentation.
  const std::string& examples() const noexcept { return examples_; }

  /// Declares the command's own options; the output options are there already.
  virtual void add_options(OptionParser& options) = 0;
  /// Looks at option combinations after parsing. Throws InvalidArgument.
  virtual void check_options() {}
  virtual int run(Console& console) = 0;

 private:
  std::string name_, summary_, examples_;
};

using CommandList = std::vector<std::unique_ptr<Command>>;

}  // namespace ts::cli
