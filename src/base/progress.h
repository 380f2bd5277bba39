/// Progress reports and interruption, passed by reference into everything that takes long.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <tensorsharp/error.hpp>

namespace ts {

/// A flag that another thread (or a signal handler) raises to stop the work.
class CancelToken {
 public:
  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  void reset() noexcept { cancelled_.store(false, std::memory_order_relaxed); }
  /// Throws Cancelled when the flag is up.
  void check() const {
    if (cancelled()) throw Cancelled("interrupted");
  }

 private:
  std::atomic<bool> cancelled_{false};
};

/// Receives "what is being done" and how far it is. Callbacks come from the calling thread only.
struct Progress {
  /// (stage, done, total): total 0 = unknown.
  std::function<void(std::string_view stage, uint64_t done, uint64_t total)> report;
  /// May be null. Not owned.
  const CancelToken* cancel = nullptr;

  void operator()(std::string_view stage, uint64_t done, uint64_t total) const {
    if (cancel) cancel->check();
    if (report) report(stage, done, total);
  }
};

}  // namespace ts
