/// Read bandwidth of main memory: the ceiling that decoding speed is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"

namespace ts {

/// Reads buffers of its own with plain loops that differ in load width (8 to 64 bytes, as the CPU
/// allows), software prefetch and page size, one sequential stream per thread.
class BandwidthMeter {
 public:
  /// Allocates and touches bytes_per_thread for each of n_threads threads (twice: ordinary and huge
  /// pages where the system has them), less when that would exceed a quarter of the available
  /// memory; picks the fastest loop. Throws ResourceExhausted when even 16 MiB per thread fail.
  explicit BandwidthMeter(int n_threads, size_t bytes_per_thread = size_t{1} << 30,
                          const Progress& progress = {});
  ~BandwidthMeter();
  BandwidthMeter(const BandwidthMeter&) = delete;
  BandwidthMeter& operator=(const BandwidthMeter&) = delete;

  /// Bytes per second of one pass of the fastest loop; each thread reads at most `max_bytes` (0 =
  /// its whole buffer), going on where the last pass ended.
  double pass(size_t max_bytes = 0);
  int n_threads() const noexcept;
  size_t bytes_per_thread() const noexcept;
  /// Of the fastest loop, e.g. "32-byte loads, huge pages".
  const std::string& loop_name() const noexcept;
  int n_loops() const noexcept;  ///< how many were compared

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct ReadBandwidth {
  int n_threads = 0;
  double bytes_per_second = 0;  ///< median of `n_passes`
  double lowest = 0, highest = 0;
  int n_passes = 0;
  size_t bytes_per_thread = 0;
  std::string loop;
};

/// One row per thread count 1, 2, 4, ... and max_threads.
std::vector<ReadBandwidth> measure_read_bandwidth(int max_threads,
                                                  size_t bytes_per_thread = size_t{1} << 30,
                                                  const Progress& progress = {});

}  // namespace ts
