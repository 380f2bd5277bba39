#include "cli/console.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <sys/ioctl.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "cli/interrupt.h"
#include "cli/text_output.h"

namespace ts::cli {
namespace {

/// Writes everything or gives errno.
int write_all(int fd, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

size_t terminal_width() noexcept {
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

bool is_capable_terminal(int fd) noexcept {
  if (isatty(fd) == 0) return false;
  const char* term = std::getenv("TERM");
  return term != nullptr && std::strcmp(term, "dumb") != 0 && *term != '\0';
}

void report_error(std::string_view program, std::string_view message) noexcept {
  try {
    const bool colour = is_capable_terminal(STDERR_FILENO) && std::getenv("NO_COLOR") == nullptr;
    (void)write_all(STDERR_FILENO,
                    fmt::format("{}: {}error:{} {}\n", program, colour ? "\033[31;1m" : "",
                                colour ? "\033[0m" : "", printable(message, true)));
  } catch (...) {  // no memory to format with
    (void)write_all(STDERR_FILENO, program);
    (void)write_all(STDERR_FILENO, ": error: ");
    (void)write_all(STDERR_FILENO, message);
    (void)write_all(STDERR_FILENO, "\n");
  }
}

Console::Console(std::string program, OutputOptions options)
    : program_(std::move(program)),
      options_(std::move(options)),
      stdout_is_terminal_(isatty(STDOUT_FILENO) != 0),
      stderr_is_terminal_(is_capable_terminal(STDERR_FILENO)) {
  const LogLevel least = options_.verbosity >= 2   ? LogLevel::kDebug
                         : options_.verbosity == 1 ? LogLevel::kInfo
                                                   : LogLevel::kWarning;
  set_log_sink([this, least](LogLevel level, std::string_view text) {
    if (level < least) return;
    if (level >= LogLevel::kWarning) {
      warn(text);
    } else {
      note(text);
    }
  });
}

Console::~Console() {
  set_log_sink({});
  clear_progress();
}

void Console::out(std::string_view text) {
  clear_progress();
  // What a model says must not steer a terminal; a file or pipe gets the bytes as they are.
  const std::string shown = stdout_is_terminal_ ? printable(text, true) : std::string();
  const int error = write_all(STDOUT_FILENO, stdout_is_terminal_ ? shown : text);
  if (error == 0) return;
  if (error == EPIPE) throw ClosedPipe();
  const std::string message = fmt::format("standard output: cannot write: {}", strerror(error));
  if (error == ENOSPC || error == EDQUOT) throw ResourceExhausted(message);
  throw IoError(message);
}

void Console::json_line(const nlohmann::ordered_json& value) {
  out(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n');
}

void Console::write_stderr(std::string_view text) {
  (void)write_all(STDERR_FILENO, text);  // nobody to tell when stderr is gone
}

void Console::note(std::string_view text) {
  if (options_.quiet) return;
  clear_progress();
  write_stderr(printable(text, true) + '\n');
}

void Console::warn(std::string_view text) {
  if (options_.quiet || !warned_.insert(std::string(text)).second) return;
  clear_progress();
  const bool colour = stderr_is_terminal_ && std::getenv("NO_COLOR") == nullptr;
  write_stderr(fmt::format("{}: {}warning:{} {}\n", program_, colour ? "\033[33m" : "",
                           colour ? "\033[0m" : "", printable(text, true)));
}

Progress Console::progress() {
  Progress progress;
  progress.cancel = &interrupt_token();
  if (stderr_is_terminal_ && !options_.quiet) {
    progress.report = [this](std::string_view stage, uint64_t done, uint64_t total) {
      show_progress(stage, done, total);
    };
  }
  return progress;
}

void Console::clear_progress() {
  if (!bar_visible_) return;
  bar_visible_ = false;
  write_stderr("\r\033[K");
}

void Console::show_progress(std::string_view stage, uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (stage != stage_) {
    stage_ = stage;
    stage_start_ = now;
    last_draw_ = now;  // work that ends within the first tick shows no bar
    return;
  }
  if (now - last_draw_ < std::chrono::milliseconds(100)) return;
  last_draw_ = now;
  const double elapsed = std::chrono::duration<double>(now - stage_start_).count();
  std::string line;
  if (total > 0) {
    done = std::min(done, total);
    const double share = static_cast<double>(done) / static_cast<double>(total);
    constexpr size_t kCells = 24;
    const auto filled = static_cast<size_t>(share * kCells);
    line = fmt::format("{} [{}{}] {:3.0f} %", printable(stage), std::string(filled, '='),
                       std::string(kCells - filled, ' '), share * 100);
    if (share > 0.01 && elapsed > 2)
      line += fmt::format("  {} left", human_seconds(elapsed / share - elapsed));
  } else {
    line = fmt::format("{} {}", printable(stage), grouped(done));
  }
  const size_t width = terminal_width();
  if (line.size() >= width) line.resize(width - 1);  // ASCII but for odd stage names
  write_stderr("\r\033[K" + line);
  bar_visible_ = true;
}

}  // namespace ts::cli
