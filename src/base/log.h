/// The library never prints: it hands log lines to a sink that the application installs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ts {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Installs the process-wide sink (empty = discard, the default). Thread-safe.
void set_log_sink(LogSink sink);

/// Keeps the warnings that this thread logs, each text once, from the sink: for a report that has a
/// place for them. The innermost one gets them; what take() has not handed out when it is destroyed
/// (an error ended the work) goes where it would have gone.
class WarningCollector {
 public:
  WarningCollector() noexcept;
  ~WarningCollector();
  WarningCollector(const WarningCollector&) = delete;
  WarningCollector& operator=(const WarningCollector&) = delete;
  std::vector<std::string> take();

 private:
  friend void log(LogLevel level, std::string_view message);
  WarningCollector* outer_;
  std::vector<std::string> lines_;
};

/// Sends one line (no trailing newline) to the sink.
void log(LogLevel level, std::string_view message);
inline void log_debug(std::string_view message) {
  log(LogLevel::kDebug, message);
}
inline void log_info(std::string_view message) {
  log(LogLevel::kInfo, message);
}
inline void log_warning(std::string_view message) {
  log(LogLevel::kWarning, message);
}

}  // namespace ts
