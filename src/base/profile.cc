#include "base/profile.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include <fmt/format.h>

namespace ts::profile {
namespace detail {
std::atomic<bool> enabled{false};
}

namespace {

struct Recorder {
  std::mutex mutex;
  std::vector<Event> events;
  std::map<std::string_view, Total> totals;
  size_t max_events = 0;
  std::chrono::steady_clock::time_point origin = std::chrono::steady_clock::now();
};

Recorder& recorder() {
  static Recorder instance;
  return instance;
}

std::atomic<uint32_t> next_thread{0};

uint32_t thread_number() noexcept {
  thread_local const uint32_t number = next_thread.fetch_add(1);
  return number;
}

}  // namespace

namespace detail {

int64_t now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                              recorder().origin)
      .count();
}

void record(const char* name, double work, int64_t start_ns, int64_t end_ns) noexcept {
  try {
    Recorder& r = recorder();
    const std::lock_guard lock(r.mutex);
    Total& total = r.totals[name];
    ++total.count;
    total.total_ns += end_ns - start_ns;
    total.work += work;
    if (r.events.size() < r.max_events)
      r.events.push_back({name, start_ns, end_ns - start_ns, thread_number()});
  } catch (...) {
    // Out of memory for measurements: the measured work must not fail for that.
    enabled.store(false, std::memory_order_relaxed);
  }
}

}  // namespace detail

void start(size_t max_events) {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  r.events.clear();
  r.totals.clear();
  r.max_events = max_events;
  detail::enabled.store(true, std::memory_order_relaxed);
}

void stop() {
  detail::enabled.store(false, std::memory_order_relaxed);
}

std::vector<Event> events() {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  return r.events;
}

std::vector<Total> totals() {
  Recorder& r = recorder();
  const std::lock_guard lock(r.mutex);
  std::vector<Total> out;
  for (const auto& [name, total] : r.totals)
    out.push_back({std::string(name), total.count, total.total_ns, total.work});
  std::sort(out.begin(), out.end(),
            [](const Total& a, const Total& b) { return a.total_ns > b.total_ns; });
  return out;
}

std::string chrome_trace_json() {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  bool first = true;
  for (const Event& e : events()) {
    // Names are static identifiers of ours; quotes and backslashes do not occur in them.
    fmt::format_to(std::back_inserter(out),
                   "{}\n{{\"name\":\"{}\",\"ph\":\"X\",\"pid\":1,\"tid\":{},\"ts\":{:.3f},"
                   "\"dur\":{:.3f}}}",
                   first ? "" : ",", e.name, e.thread, static_cast<double>(e.start_ns) / 1e3,
                   static_cast<double>(e.duration_ns) / 1e3);
    first = false;
  }
  return out + "\n]}\n";
}

}  // namespace ts::profile
