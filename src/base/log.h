/// The library never prints: it hands log lines to a sink that the application installs.
#pragma once

#include <functional>
#include <string_view>

namespace ts {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Installs the process-wide sink (empty = discard, the default). Thread-safe.
void set_log_sink(LogSink sink);

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
