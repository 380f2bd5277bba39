/// The main function of both programs: finds the subcommand, parses its options, runs it, and turns
/// every failure into a message and an exit status.
#pragma once

#include <string>

#include "cli/command.h"

namespace ts::cli {

struct Program {
  std::string name;     ///< "tensorsharp"
  std::string summary;  ///< first paragraph of --help
  CommandList commands;
};

/// Returns the exit status; never throws.
int run_program(const Program& program, int argc, char** argv) noexcept;

/// The option parser of one command, with its help text, for parsing and for shell completion.
/// `command` and `output` must outlive it.
std::unique_ptr<OptionParser> make_parser(const std::string& program, Command& command,
                                          OutputOptions& output);

}  // namespace ts::cli
