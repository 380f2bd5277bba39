#include "base/cpu_topology.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

namespace fs = std::filesystem;

std::string read_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

int64_t read_integer(const fs::path& path, int64_t fallback) {
  return to_integer(read_line(path)).value_or(fallback);
}

std::vector<int> kernel_affinity() {
  std::vector<int> cpus;
  // A set large enough for machines with more CPUs than the fixed cpu_set_t holds.
  constexpr int kMaxCpus = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxCpus);
  if (!set) return cpus;
  const size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  CPU_ZERO_S(bytes, set);
  if (sched_getaffinity(0, bytes, set) == 0) {
    for (int i = 0; i < kMaxCpus; ++i) {
      if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) cpus.push_back(i);
    }
  }
  CPU_FREE(set);
  return cpus;
}

/// The process's group path in a hierarchy: "0::/a/b" (version 2) or "4:cpu,cpuacct:/a/b".
std::string group_path(const fs::path& root, std::string_view controller) {
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::stringstream names(line.substr(first + 1, second - first - 1));
    bool match = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');)
      match = match || (!controller.empty() && name == controller);
    if (match) return line.substr(second + 1);
  }
  return "/";
}

/// Calls visit(directory) for the group's directory and every parent up to the mount point. In a
/// container the path may not exist below the mount; then only the mount point is visited.
template <typename Visit>
void for_each_group(const fs::path& mount, const std::string& path, Visit visit) {
  fs::path relative = fs::path(path).relative_path().lexically_normal();
  std::error_code ignored;
  while (!relative.empty() && relative != ".") {
    if (fs::is_directory(mount / relative, ignored)) visit(mount / relative);
    relative = relative.parent_path();
  }
  visit(mount);
}

void read_quota(const fs::path& root, CpuTopology& out) {
  const auto lower = [&out](double cpus, const char* source) {
    if (cpus > 0 && (out.quota == 0 || cpus < out.quota)) {
      out.quota = cpus;
      out.quota_source = source;
    }
  };
  const fs::path mount = root / "sys/fs/cgroup";
  for_each_group(mount, group_path(root, ""), [&](const fs::path& group) {
    std::stringstream line(read_line(group / "cpu.max"));
    std::string quota, period;
    if (!(line >> quota >> period)) return;
    const auto q = to_integer(quota), p = to_integer(period);
    if (q && p && *q > 0 && *p > 0)
      lower(static_cast<double>(*q) / static_cast<double>(*p), "cgroup cpu.max");
  });
  for (const char* controller : {"cpu", "cpu,cpuacct"}) {
    for_each_group(mount / controller, group_path(root, "cpu"), [&](const fs::path& group) {
      const int64_t q = read_integer(group / "cpu.cfs_quota_us", -1);
      const int64_t p = read_integer(group / "cpu.cfs_period_us", -1);
      if (q > 0 && p > 0)
        lower(static_cast<double>(q) / static_cast<double>(p), "cgroup cpu.cfs_quota_us");
    });
  }
}

int read_node(const fs::path& cpu_directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cpu_directory, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) == 0) {
      if (const auto number = to_integer(std::string_view(name).substr(4)))
        return static_cast<int>(*number);
    }
  }
  return 0;
}

/// Speed of a CPU for telling performance from efficiency cores; 0 = unknown.
int64_t speed(const LogicalCpu& cpu) {
  return cpu.capacity > 0 ? cpu.capacity : cpu.max_khz;
}

}  // namespace

std::vector<int> parse_cpu_list(std::string_view text, std::string_view what) {
  std::set<int> cpus;
  const auto fail = [&] {
    throw InvalidArgument(
        fmt::format("{}: \"{}\" is not a list of CPU numbers like 0-3,8", what, text));
  };
  constexpr int64_t kMaxCpu = 8191;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    const size_t dash = item.find('-');
    const auto number = [&](std::string_view digits) -> int64_t {
      int64_t value = -1;
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || end != digits.data() + digits.size() || value < 0 ||
          value > kMaxCpu)
        fail();
      return value;
    };
    const int64_t first = number(item.substr(0, dash));
    const int64_t last = dash == std::string_view::npos ? first : number(item.substr(dash + 1));
    if (last < first) fail();
    for (int64_t i = first; i <= last; ++i)
      cpus.insert(static_cast<int>(i));
    at = comma + 1;
  }
  return {cpus.begin(), cpus.end()};
}

CpuTopology read_cpu_topology(const fs::path& root, std::vector<int> affinity) {
  CpuTopology out;
  if (affinity.empty()) affinity = kernel_affinity();
  const fs::path cpu_root = root / "sys/devices/system/cpu";
  std::vector<int> online;
  try {
    online = parse_cpu_list(read_line(cpu_root / "online"), "online CPUs");
  } catch (const InvalidArgument&) {
    online = affinity;  // no sysfs: the affinity is all there is to know
  }
  out.n_online = static_cast<int>(online.size());
  for (const int id : affinity) {
    if (!std::binary_search(online.begin(), online.end(), id)) continue;
    const fs::path directory = cpu_root / ("cpu" + std::to_string(id));
    LogicalCpu cpu;
    cpu.id = id;
    cpu.package = static_cast<int>(read_integer(directory / "topology/physical_package_id", 0));
    cpu.core = static_cast<int>(read_integer(directory / "topology/core_id", id));
    cpu.node = read_node(directory);
    cpu.max_khz = read_integer(directory / "cpufreq/cpuinfo_max_freq", 0);
    cpu.capacity = read_integer(directory / "cpu_capacity", 0);
    out.cpus.push_back(cpu);
  }
  // Hybrid x86 chips list their core types; more reliable than clock rates, which also differ
  // between equal cores of one chip.
  for (const auto& [name, capacity] : {std::pair{"cpu_core", 1024}, std::pair{"cpu_atom", 512}}) {
    const std::string list = read_line(root / "sys/devices" / name / "cpus");
    if (list.empty()) continue;
    for (const int id : parse_cpu_list(list, name)) {
      for (LogicalCpu& cpu : out.cpus) {
        if (cpu.id == id && cpu.capacity == 0) cpu.capacity = capacity;
      }
    }
  }
  read_quota(root, out);
  return out;
}

ThreadChoice choose_threads(const CpuTopology& topology) {
  // One logical CPU per physical core.
  std::map<std::pair<int, int>, LogicalCpu> cores;
  for (const LogicalCpu& cpu : topology.cpus)
    cores.try_emplace({cpu.package, cpu.core}, cpu);
  if (cores.empty()) return {1, "the CPUs of this process are unknown"};

  // Performance cores: at least 80 % of the fastest core's speed (boost bins of equal cores differ
  // by a few percent, efficiency cores by a third or more).
  int64_t fastest = 0;
  for (const auto& [key, cpu] : cores)
    fastest = std::max(fastest, speed(cpu));
  std::map<int, int> fast_per_node;
  int n_fast = 0;
  for (const auto& [key, cpu] : cores) {
    if (speed(cpu) * 10 >= fastest * 8) {
      ++n_fast;
      ++fast_per_node[cpu.node];
    }
  }
  const int n_cores = static_cast<int>(cores.size());
  const int n_cpus = static_cast<int>(topology.cpus.size());

  ThreadChoice choice;
  choice.n_threads = n_fast;
  if (n_fast < n_cores)
    choice.reason = fmt::format("{} performance cores of {} cores", n_fast, n_cores);
  else if (n_cpus > n_cores)
    choice.reason = fmt::format("{} physical cores, {} logical CPUs", n_cores, n_cpus);
  else
    choice.reason = fmt::format("{} cores", n_cores);
  if (n_cpus < topology.n_online)
    choice.reason += fmt::format(", affinity allows {} of {} CPUs", n_cpus, topology.n_online);
  if (topology.quota > 0) {
    const int limit = std::max(1, static_cast<int>(std::floor(topology.quota + 1e-9)));
    if (limit < choice.n_threads) {
      choice.n_threads = limit;
      choice.reason = fmt::format("{} allows {:.2f} CPUs; {}", topology.quota_source,
                                  topology.quota, choice.reason);
    }
  }
  return choice;
}

ThreadChoice default_threads() {
  return choose_threads(read_cpu_topology());
}

}  // namespace ts
