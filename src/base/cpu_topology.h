/// How many threads this process should use, and why.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace ts {

/// One logical CPU the process may run on.
struct LogicalCpu {
  int id = 0;
  int package = 0;
  int core = 0;          ///< core number within the package; siblings share both numbers
  int node = 0;          ///< memory node
  int64_t max_khz = 0;   ///< 0 = unknown
  int64_t capacity = 0;  ///< relative speed from the device tree (ARM); 0 = unknown
};

struct CpuTopology {
  std::vector<LogicalCpu> cpus;  ///< available to the process, by id
  int n_online = 0;              ///< in the machine
  double quota = 0;              ///< CPUs a control group allows; 0 = no limit
  std::string quota_source;      ///< e.g. "cgroup cpu.max"
};

/// Reads sysfs and the control groups below `root` ("/" for the real machine; tests point it at a
/// recorded tree). `affinity`: the CPUs the process may run on; empty = ask the kernel.
CpuTopology read_cpu_topology(const std::filesystem::path& root = "/",
                              std::vector<int> affinity = {});

struct ThreadChoice {
  int n_threads = 1;
  std::string reason;  ///< e.g. "8 performance cores of 20"
};

/// One thread per physical performance core that the process may use, not more than its quota
/// (rounded down, at least 1).
ThreadChoice choose_threads(const CpuTopology& topology);
/// choose_threads() of this machine.
ThreadChoice default_threads();

/// CPU numbers from "0-3,8,10-11"; InvalidArgument naming `what` when malformed.
std::vector<int> parse_cpu_list(std::string_view text, std::string_view what);

}  // namespace ts
