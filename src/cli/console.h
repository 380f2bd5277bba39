/// Where a command's output goes: results to stdout, everything else to stderr.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/progress.h"

namespace ts::cli {

/// stdout was closed by its reader; ends the program quietly.
class ClosedPipe {};

/// Options that every command has.
struct OutputOptions {
  bool json = false;
  bool quiet = false;
  int verbosity = 0;  ///< 0, 1 (-v), 2 (-vv)
};

class Console {
 public:
  Console(std::string program, OutputOptions options);
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;
  ~Console();

  bool json() const noexcept { return options_.json; }
  bool quiet() const noexcept { return options_.quiet; }
  bool verbose() const noexcept { return options_.verbosity > 0; }
  const OutputOptions& options() const noexcept { return options_; }

  /// Writes to stdout at once; on a terminal, what would steer it is shown as \xNN. Throws
  /// ClosedPipe, ResourceExhausted (disk full) or IoError.
  void out(std::string_view text);
  template <typename... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    out(fmt::format(format, std::forward<Args>(args)...));
  }
  /// One JSON value on a line of its own; bytes that are not UTF-8 become U+FFFD.
  void json_line(const nlohmann::ordered_json& value);

  /// A line for people on stderr, unless --quiet.
  void note(std::string_view text);
  template <typename... Args>
  void note_format(fmt::format_string<Args...> format, Args&&... args) {
    note(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Like note(), marked as a warning; the same warning is given once.
  void warn(std::string_view text);

  /// Reports to the progress bar (only on a terminal, never with --quiet) and stops the work with
  /// Cancelled after an interrupt. The bar disappears with the next line written.
  Progress progress();
  void clear_progress();

 private:
  void show_progress(std::string_view stage, uint64_t done, uint64_t total);
  void write_stderr(std::string_view text);

  std::string program_;
  OutputOptions options_;
  bool stdout_is_terminal_ = false;
  bool stderr_is_terminal_ = false;
  bool bar_visible_ = false;
  std::set<std::string> warned_;
  std::string stage_;
  std::chrono::steady_clock::time_point stage_start_, last_draw_;
};

/// "tensorsharp: error: ..." on stderr, red on a terminal. Never throws.
void report_error(std::string_view program, std::string_view message) noexcept;

/// True when a file descriptor is a terminal that understands colours and cursor movement.
bool is_capable_terminal(int fd) noexcept;

}  // namespace ts::cli
