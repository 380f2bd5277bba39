#include "cli/program.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>
#include <tensorsharp/version.hpp>

#include "base/quote_text.h"
#include "cli/crash_handler.h"
#include "cli/interrupt.h"

namespace ts::cli {
namespace {

std::string program_help(const Program& program) {
  std::string out = fmt::format("Usage: {} COMMAND [ARGUMENTS]\n\n{}\nCommands:\n", program.name,
                                wrap_text(program.summary, 0, 80));
  for (const auto& command : program.commands) {
    const std::string left = "  " + command->name();
    std::string text = wrap_text(command->summary(), 22, 80);
    out += left + text.substr(std::min(left.size(), text.size()));
  }
  out += fmt::format(
      "\n'{0} COMMAND --help' explains a command, with examples.\n"
      "Results go to standard output, everything else to standard error; --json makes every\n"
      "command print JSON.\n"
      "Exit status: 0 done, 1 done and the answer is no, 2 wrong usage, 3 bad input, 4 not\n"
      "supported, 5 does not fit in memory or on disk, 70 a defect of the program, 130\n"
      "interrupted, 141 the reader of standard output went away.\n",
      program.name);
  return out;
}

std::string command_names(const Program& program) {
  std::string out;
  for (const auto& command : program.commands)
    out += (out.empty() ? "" : ", ") + command->name();
  return out;
}

/// The command whose words the arguments start with, and how many words those are.
std::pair<Command*, size_t> find_command(const Program& program,
                                         const std::vector<std::string>& arguments) {
  for (const auto& command : program.commands) {
    const std::string& name = command->name();
    const size_t blank = name.find(' ');
    if (arguments[0] != name.substr(0, blank)) continue;
    if (blank == std::string::npos) return {command.get(), 1};
    if (arguments.size() > 1 && arguments[1] == name.substr(blank + 1)) return {command.get(), 2};
  }
  return {nullptr, 0};
}

/// Help for the first word of two-word commands ("eval --help"), or an empty string.
std::string group_help(const Program& program, const std::string& word) {
  std::string out;
  for (const auto& command : program.commands) {
    if (command->name().starts_with(word + " "))
      out += fmt::format("  {:<18}{}", command->name(),
                         wrap_text(command->summary(), 20, 80).substr(20));
  }
  if (out.empty()) return out;
  return fmt::format(
      "Usage: {0} {1} KIND MODEL [OPTIONS]\n\nKinds:\n{2}\n"
      "'{0} {1} KIND --help' explains one, with examples.\n",
      program.name, word, out);
}

bool is_help(const std::string& text) {
  return text == "--help" || text == "-h" || text == "help";
}

void print(const std::string& text) {
  Console({}, {}).out(text);
}

int dispatch(const Program& program, std::vector<std::string> arguments) {
  if (arguments.empty()) {
    Console(program.name, {}).note(program_help(program));
    return kWrongUsage;
  }
  if (arguments[0] == "--version" || arguments[0] == "-V") {
    print(fmt::format("{} {}\n", program.name, version()));
    return kSuccess;
  }
  if (is_help(arguments[0])) {
    if (arguments.size() == 1) {
      print(program_help(program));
      return kSuccess;
    }
    arguments.erase(arguments.begin());  // "help run" is "run --help"
    arguments.emplace_back("--help");
  }
  const auto [command, words] = find_command(program, arguments);
  if (command == nullptr) {
    const std::string group = group_help(program, arguments[0]);
    if (!group.empty() && arguments.size() > 1 && is_help(arguments[1])) {
      print(group);
      return kSuccess;
    }
    std::string found = quote_text(arguments[0]);
    if (!group.empty())
      found = arguments.size() > 1 ? quote_text(arguments[0] + " " + arguments[1])
                                   : found + " needs a kind";
    throw InvalidArgument(
        group.empty() || arguments.size() > 1
            ? fmt::format("{} is not a command\n  The commands are: {}\n  See '{} --help'.", found,
                          command_names(program), program.name)
            : fmt::format("{}\n  The commands are: {}\n  See '{} --help'.", found,
                          command_names(program), program.name));
  }

  OutputOptions output;
  const auto parser = make_parser(program.name, *command, output);
  arguments.erase(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(words));
  try {
    switch (parser->parse(std::move(arguments))) {
      case ParseOutcome::kHelp:
        print(parser->help());
        return kSuccess;
      case ParseOutcome::kVersion:
        print(fmt::format("{} {}\n", program.name, version()));
        return kSuccess;
      case ParseOutcome::kRun:
        break;
    }
    command->check_options();
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}\n  See '{} {} --help'.", command->name(),
                                      error.what(), program.name, command->name()));
  }
  Console console(program.name, output);
  return command->run(console);
}

int exit_status_of(const std::exception& error, const std::string& program) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    report_error(program, known->what());
    return known->kind().exit_status;
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    report_error(program,
                 "out of memory\n  `plan` shows what a model needs; a smaller --ctx or --kv q8 "
                 "needs less.");
    return error_kind(ErrorCode::kResourceExhausted).exit_status;
  }
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    const auto& code = system->code();
    if (code == std::errc::resource_unavailable_try_again || code == std::errc::not_enough_memory) {
      report_error(program, fmt::format("the system refused a thread or memory: {}\n  Raise the "
                                        "limit (ulimit -u, -v) or use fewer --threads.",
                                        system->what()));
      return error_kind(ErrorCode::kResourceExhausted).exit_status;
    }
    if (dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr) {
      report_error(program, system->what());
      return error_kind(ErrorCode::kIo).exit_status;
    }
  }
  report_error(program, fmt::format("unexpected failure: {}\n  This is a defect of the program; "
                                    "please report it with the command line.",
                                    error.what()));
  return kDefect;
}

}  // namespace

std::unique_ptr<OptionParser> make_parser(const std::string& program, Command& command,
                                          OutputOptions& output) {
  auto options = std::make_unique<OptionParser>(program + " " + command.name(), command.summary(),
                                                command.examples());
  command.add_options(*options);
  options->group(kOutputGroup);
  options->flag("--json", output.json, "print JSON on standard output");
  options->flag("--quiet,-q", output.quiet, "no progress, notes or warnings");
  options->counter("--verbose,-v", output.verbosity, "show more; twice: everything");
  return options;
}

/// A closed standard stream must not become the number of the next file that is opened. What
/// stands in its place cannot be used: reading or writing it is an error, as it was.
static void reserve_standard_streams() noexcept {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one.
    static_cast<void>(!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
  }
}

int run_program(const Program& program, int argc, char** argv) noexcept {
  reserve_standard_streams();
  install_signal_handlers();
  install_crash_handler();
  try {
    return dispatch(program, std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
  } catch (const ClosedPipe&) {
    return kPipeClosed;
  } catch (const std::exception& error) {
    try {
      return exit_status_of(error, program.name);
    } catch (...) {
      report_error(program.name, error.what());
      return kDefect;
    }
  } catch (...) {
    report_error(program.name, "unexpected failure of unknown kind");
    return kDefect;
  }
}

}  // namespace ts::cli
