/// The memory bandwidth that rates are compared with: measured by `bench --membw` and kept in the
/// user's cache directory, else measured briefly when it is needed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace ts::cli {

struct KnownBandwidth {
  double bytes_per_second = 0;
  bool from_cache = false;  ///< false = a brief measurement just now
};

/// Of this many threads: the kept figure, else a brief measurement (some 200 ms, once per process).
/// Nothing when memory for it is short. Not thread-safe.
std::optional<KnownBandwidth> read_bandwidth(int n_threads);

/// Keeps (threads, bytes per second) pairs for this machine. A cache that cannot be written is no
/// error.
void keep_read_bandwidth(const std::vector<std::pair<int, double>>& results);

/// Weights below this size stay in the CPU's caches: the bandwidth of memory says nothing then.
inline constexpr uint64_t kLeastBytesForShare = uint64_t{64} << 20;

}  // namespace ts::cli
