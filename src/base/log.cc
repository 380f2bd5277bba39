#include "base/log.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace ts {
namespace {

std::mutex g_mutex;
std::shared_ptr<const LogSink> g_sink;
thread_local WarningCollector* t_collector = nullptr;

}  // namespace

void set_log_sink(LogSink sink) {
  auto next = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(g_mutex);
  g_sink = std::move(next);
}

WarningCollector::WarningCollector() noexcept : outer_(t_collector) {
  t_collector = this;
}

WarningCollector::~WarningCollector() {
  t_collector = outer_;
  for (const std::string& line : lines_) {
    try {
      log_warning(line);
    } catch (...) {  // a destructor has nobody to tell
    }
  }
}

std::vector<std::string> WarningCollector::take() {
  return std::exchange(lines_, {});
}

void log(LogLevel level, std::string_view message) {
  if (level == LogLevel::kWarning && t_collector != nullptr) {
    std::vector<std::string>& lines = t_collector->lines_;
    if (std::find(lines.begin(), lines.end(), message) == lines.end()) lines.emplace_back(message);
    return;
  }
  std::shared_ptr<const LogSink> sink;
  {
    const std::lock_guard lock(g_mutex);
    sink = g_sink;
  }
  if (sink) (*sink)(level, message);
}

}  // namespace ts
