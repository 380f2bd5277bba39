/// Timing of operations for `--profile`: off by default, one relaxed load per scope when off.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ts::profile {

struct Event {
  const char* name;  ///< static string: the operation, e.g. "linear q4_1"
  int64_t start_ns;  ///< since start()
  int64_t duration_ns;
  uint32_t thread;  ///< small number of the recording thread
};

struct Total {
  std::string name;
  uint64_t count = 0;
  int64_t total_ns = 0;
  double work = 0;  ///< what its scopes said they do
};

/// Clears all events and starts recording, at most `max_events` (later ones are counted only in the
/// totals). Process-wide and thread-safe.
void start(size_t max_events = 4'000'000);
void stop();
std::vector<Event> events();
/// Sums by name, largest first.
std::vector<Total> totals();
/// The events in Chrome's trace format (chrome://tracing, Perfetto), microseconds.
std::string chrome_trace_json();

namespace detail {
extern std::atomic<bool> enabled;
int64_t now_ns() noexcept;
void record(const char* name, double work, int64_t start_ns, int64_t end_ns) noexcept;
}  // namespace detail

inline bool enabled() noexcept {
  return detail::enabled.load(std::memory_order_relaxed);
}

/// Times the enclosing scope. `name` must be a static string. `work` counts what is done in it, for
/// a product its multiplications.
class Scope {
 public:
  explicit Scope(const char* name, double work = 0) noexcept
      : name_(name), work_(work), start_ns_(enabled() ? detail::now_ns() : -1) {}
  ~Scope() {
    if (start_ns_ >= 0) detail::record(name_, work_, start_ns_, detail::now_ns());
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  const char* name_;
  double work_;
  int64_t start_ns_;
};

}  // namespace ts::profile
