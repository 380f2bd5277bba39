/// Where a program's memory lies on machines with several memory nodes (NUMA).
///
/// By default the kernel takes memory from the node of the thread that touches it first; a model
/// that one thread maps or copies then lies on one node, and threads of other nodes read it through
/// the link between them: two sockets are slower than one. Pages dealt out in turn over the nodes
/// in use keep all memory controllers busy, wherever the threads run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_topology.h"

namespace ts {

struct MemoryNodeChoice {
  std::vector<int> interleave;  ///< nodes to deal pages out over; empty = leave it to the kernel
  std::string reason;           ///< e.g. "threads on 2 memory nodes"
};

/// `mode`: auto, off or interleave (InvalidArgument otherwise). `cores`: CPUs the threads are
/// pinned to; empty = they run wherever the process may. auto interleaves when the threads need
/// more than one node's cores or are pinned to several nodes.
MemoryNodeChoice choose_memory_nodes(std::string_view mode, const CpuTopology& topology,
                                     const std::vector<int>& cores, int n_threads);

/// While it lives, memory that the calling thread, and any thread started by it meanwhile, touches
/// first comes from `nodes` in turn; such threads keep that for life. No effect for fewer than two
/// nodes, and where the process was started with a policy of its own (numactl), which stays.
class InterleavedMemory {
 public:
  explicit InterleavedMemory(const std::vector<int>& nodes);
  InterleavedMemory(const InterleavedMemory&) = delete;
  InterleavedMemory& operator=(const InterleavedMemory&) = delete;
  ~InterleavedMemory();

  bool active() const noexcept { return active_; }
  /// Why not, where it was asked for: the system's reason, or "the process has a policy of its
  /// own".
  const std::string& obstacle() const noexcept { return obstacle_; }

 private:
  bool active_ = false;
  std::string obstacle_;
};

}  // namespace ts
