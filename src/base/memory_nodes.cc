#include "base/memory_nodes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

// linux/mempolicy.h, which not every build machine has.
constexpr int kDefaultPolicy = 0, kInterleavePolicy = 3;
constexpr int kMaxNodes = 1024;

}  // namespace

MemoryNodeChoice choose_memory_nodes(std::string_view mode, const CpuTopology& topology,
                                     const std::vector<int>& cores, int n_threads) {
  if (mode != "auto" && mode != "off" && mode != "interleave")
    throw InvalidArgument(
        fmt::format("numa: \"{}\" is not a policy; use auto, off or interleave", mode));
  if (mode == "off") return {{}, "off, as asked"};
  std::set<int> nodes;
  std::map<int, std::set<std::pair<int, int>>> cores_of;  // physical cores of a node
  for (const LogicalCpu& cpu : topology.cpus) {
    if (!cores.empty() && std::find(cores.begin(), cores.end(), cpu.id) == cores.end()) continue;
    nodes.insert(cpu.node);
    cores_of[cpu.node].insert({cpu.package, cpu.core});
  }
  if (nodes.size() < 2)
    return {{}, cores.empty() ? "one memory node" : "all threads on one memory node"};
  const std::string where = fmt::format("memory nodes {}", fmt::join(nodes, ", "));
  if (mode == "interleave") return {{nodes.begin(), nodes.end()}, where + ", as asked"};
  size_t largest = 0;
  for (const auto& [node, physical] : cores_of)
    largest = std::max(largest, physical.size());
  if (cores.empty() && static_cast<size_t>(n_threads) <= largest)
    return {{}, fmt::format("{} threads fit one memory node", n_threads)};
  return {{nodes.begin(), nodes.end()}, "threads on " + where};
}

InterleavedMemory::InterleavedMemory(const std::vector<int>& nodes) {
  if (nodes.size() < 2) return;
  int policy = kDefaultPolicy;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0UL, nullptr, 0UL) != 0) {
    obstacle_ = std::strerror(errno);
    return;
  }
  if (policy != kDefaultPolicy) {
    obstacle_ = "the process has a policy of its own";
    return;
  }
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, kMaxNodes / kBits> mask{};
  for (const int node : nodes) {
    if (node < 0 || node >= kMaxNodes) {
      obstacle_ = fmt::format("node {} is out of range", node);
      return;
    }
    mask[static_cast<size_t>(node) / kBits] |= 1UL << (static_cast<size_t>(node) % kBits);
  }
  // The kernel takes the number of bits plus one.
  if (syscall(SYS_set_mempolicy, kInterleavePolicy, mask.data(), kMaxNodes + 1UL) != 0)
    obstacle_ = std::strerror(errno);
  else
    active_ = true;
}

InterleavedMemory::~InterleavedMemory() {
  if (active_) syscall(SYS_set_mempolicy, kDefaultPolicy, nullptr, 0UL);
}

}  // namespace ts
