/// How much memory this process may still use: of the machine, of its container, of its limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace ts {

struct AvailableMemory {
  uint64_t bytes = UINT64_MAX;
  std::string limit_name;  ///< "MemAvailable", "cgroup memory.max", "RLIMIT_AS", ...
};

/// The tightest of: MemAvailable; the limit less the usage (without reclaimable file pages) of
/// every control group this process is in, versions 1 and 2; RLIMIT_AS and RLIMIT_DATA less what is
/// in use. `root` stands for "/" in tests.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

}  // namespace ts
