// Thread counts from recorded machines: small trees of sysfs and control-group files.
#include "base/cpu_topology.h"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <tensorsharp/error.hpp>

#include "base/cpu_features.h"
#include "base/memory_nodes.h"

namespace ts {
namespace {
namespace fs = std::filesystem;

class Machine {
 public:
  Machine()
      : root_(fs::temp_directory_path() /
              ("ts_topology_" + std::to_string(getpid()) + "_" + std::to_string(counter_++))) {
    fs::create_directories(root_);
  }
  ~Machine() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  /// Adds a CPU; call online() afterwards.
  void cpu(int id, int core, int64_t max_khz = 0, int package = 0, int node = 0) {
    const std::string directory = "sys/devices/system/cpu/cpu" + std::to_string(id) + "/";
    file(directory + "topology/core_id", std::to_string(core));
    file(directory + "topology/physical_package_id", std::to_string(package));
    if (max_khz) file(directory + "cpufreq/cpuinfo_max_freq", std::to_string(max_khz));
    fs::create_directories(root_ / directory / ("node" + std::to_string(node)));
    ids_.push_back(id);
  }
  ThreadChoice choose(std::vector<int> affinity = {}) {
    std::string online;
    for (const int id : ids_)
      online += (online.empty() ? "" : ",") + std::to_string(id);
    file("sys/devices/system/cpu/online", online);
    return choose_threads(read_cpu_topology(root_, affinity.empty() ? ids_ : affinity));
  }

 private:
  static inline int counter_ = 0;
  fs::path root_;
  std::vector<int> ids_;
};

TEST(Topology, PlainCores) {
  Machine m;
  for (int i = 0; i < 4; ++i)
    m.cpu(i, i, 4200000);
  const ThreadChoice choice = m.choose();
  EXPECT_EQ(choice.n_threads, 4);
  EXPECT_EQ(choice.reason, "4 cores");
}

TEST(Topology, OneThreadPerCoreWithSmt) {
  Machine m;
  for (int i = 0; i < 16; ++i)
    m.cpu(i, i % 8);
  const ThreadChoice choice = m.choose();
  EXPECT_EQ(choice.n_threads, 8);
  EXPECT_THAT(choice.reason, testing::HasSubstr("16 logical"));
}

TEST(Topology, HybridByCoreType) {
  Machine m;  // 8 performance and 12 efficiency cores, no SMT; the clock rates differ little
  for (int i = 0; i < 20; ++i)
    m.cpu(i, i, i < 8 ? 5200000 : 4600000);
  m.file("sys/devices/cpu_core/cpus", "0-7");
  m.file("sys/devices/cpu_atom/cpus", "8-19");
  const ThreadChoice choice = m.choose();
  EXPECT_EQ(choice.n_threads, 8);
  EXPECT_THAT(choice.reason, testing::HasSubstr("8 performance cores of 20"));
}

TEST(Topology, HybridByFrequencyAndEqualCoresWithBoostBins) {
  Machine hybrid;
  for (int i = 0; i < 8; ++i)
    hybrid.cpu(i, i, i < 4 ? 3000000 : 1800000);
  EXPECT_EQ(hybrid.choose().n_threads, 4);
  Machine bins;
  for (int i = 0; i < 8; ++i)
    bins.cpu(i, i, 4700000 + 50000 * i);
  EXPECT_EQ(bins.choose().n_threads, 8);
}

TEST(Topology, LargeArmMachine) {
  Machine m;
  for (int i = 0; i < 128; ++i)
    m.cpu(i, i, 3000000, i / 64, i / 64);
  EXPECT_EQ(m.choose().n_threads, 128);
}

TEST(Topology, SameCoreNumberInTwoPackages) {
  Machine m;
  for (int i = 0; i < 8; ++i)
    m.cpu(i, i % 4, 0, i / 4, i / 4);
  EXPECT_EQ(m.choose().n_threads, 8);
}

TEST(MemoryNodes, FollowThreadsAndOption) {
  CpuTopology two;  // two nodes of four cores with two logical CPUs each
  for (int i = 0; i < 16; ++i) {
    LogicalCpu cpu;
    cpu.id = i;
    cpu.node = i / 4 % 2;  // numbered the way systems do: siblings after all cores
    cpu.package = cpu.node;
    cpu.core = i % 4;
    two.cpus.push_back(cpu);
  }
  const auto nodes = [&](const char* mode, const std::vector<int>& cores, int n_threads) {
    return choose_memory_nodes(mode, two, cores, n_threads).interleave;
  };
  const std::vector<int> both = {0, 1}, none;
  EXPECT_EQ(nodes("auto", {}, 8), both);
  EXPECT_EQ(nodes("auto", {}, 5), both);
  EXPECT_EQ(nodes("auto", {}, 4), none) << "they fit one node";
  EXPECT_EQ(nodes("interleave", {}, 4), both);
  EXPECT_EQ(nodes("off", {}, 8), none);
  EXPECT_EQ(nodes("auto", {0, 1, 2, 8}, 4), none) << "pinned to one node";
  EXPECT_EQ(nodes("auto", {0, 4}, 2), both) << "pinned to two";
  EXPECT_EQ(nodes("interleave", {0, 1, 2, 8}, 4), none) << "pinned to one node";
  EXPECT_THAT(choose_memory_nodes("auto", two, {}, 8).reason, testing::HasSubstr("0, 1"));
  CpuTopology one = two;
  for (LogicalCpu& cpu : one.cpus)
    cpu.node = 0;
  EXPECT_EQ(choose_memory_nodes("interleave", one, {}, 8).reason, "one memory node");
  EXPECT_THROW(choose_memory_nodes("replicate", two, {}, 8), InvalidArgument);
}

TEST(MemoryNodes, NothingIsInterleavedOverOneNode) {
  const InterleavedMemory memory({0});
  EXPECT_FALSE(memory.active());
  EXPECT_EQ(memory.obstacle(), "");
}

TEST(MemoryNodes, NodesThatDoNotExistAreReported) {
  const InterleavedMemory memory({5000, 5001});
  EXPECT_FALSE(memory.active());
  EXPECT_NE(memory.obstacle(), "");
}

TEST(Topology, AffinityLimits) {
  Machine m;
  for (int i = 0; i < 16; ++i)
    m.cpu(i, i);
  const ThreadChoice choice = m.choose({0, 1});
  EXPECT_EQ(choice.n_threads, 2);
  EXPECT_THAT(choice.reason, testing::HasSubstr("2 of 16"));
}

TEST(Topology, ControlGroupVersion2) {
  Machine m;
  for (int i = 0; i < 96; ++i)
    m.cpu(i, i % 48);
  m.file("proc/self/cgroup", "0::/kubepods/pod7");
  m.file("sys/fs/cgroup/kubepods/pod7/cpu.max", "765000 100000");
  m.file("sys/fs/cgroup/kubepods/cpu.max", "max 100000");
  const ThreadChoice choice = m.choose();
  EXPECT_EQ(choice.n_threads, 7);
  EXPECT_THAT(choice.reason, testing::HasSubstr("7.65"));
}

TEST(Topology, ControlGroupVersion2InsideAContainer) {
  Machine m;  // the path of the host does not exist below the container's mount
  for (int i = 0; i < 16; ++i)
    m.cpu(i, i);
  m.file("proc/self/cgroup", "0::/../../docker/abc");
  m.file("sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(m.choose().n_threads, 2);
}

TEST(Topology, ParentGroupMayBeTighter) {
  Machine m;
  for (int i = 0; i < 16; ++i)
    m.cpu(i, i);
  m.file("proc/self/cgroup", "0::/a/b");
  m.file("sys/fs/cgroup/a/b/cpu.max", "800000 100000");
  m.file("sys/fs/cgroup/a/cpu.max", "300000 100000");
  EXPECT_EQ(m.choose().n_threads, 3);
}

TEST(Topology, ControlGroupVersion1AndQuotaBelowOne) {
  Machine m;
  for (int i = 0; i < 16; ++i)
    m.cpu(i, i);
  m.file("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc");
  m.file("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "50000");
  m.file("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000");
  EXPECT_EQ(m.choose().n_threads, 1);
  m.file("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(m.choose().n_threads, 16);
}

TEST(Topology, MissingAndOddFilesDoNotHurt) {
  Machine m;
  EXPECT_GE(choose_threads(read_cpu_topology("/nonexistent/tree", {0, 1, 2})).n_threads, 1);
  m.cpu(0, 0);
  m.file("sys/fs/cgroup/cpu.max", "garbage");
  m.file("sys/devices/system/cpu/cpu0/topology/core_id", "x");
  EXPECT_EQ(m.choose().n_threads, 1);
  EXPECT_EQ(choose_threads({}).n_threads, 1);
}

TEST(Topology, ThisMachine) {
  const ThreadChoice choice = default_threads();
  EXPECT_GE(choice.n_threads, 1);
  EXPECT_LE(choice.n_threads, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  EXPECT_FALSE(choice.reason.empty());
}

TEST(CpuList, ParsesAndRefuses) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11", "--cores"),
              testing::ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("5", "--cores"), testing::ElementsAre(5));
  for (const char* bad : {"", "a", "1-", "-1", "3-1", "1,,2", "0-99999999", "1 2", "1,"})
    EXPECT_THROW(parse_cpu_list(bad, "--cores"), InvalidArgument) << bad;
}

TEST(CpuFeatures, AreConsistent) {
  const CpuFeatures& f = cpu_features();
  EXPECT_TRUE(!f.avx2 || f.avx);
  EXPECT_TRUE(!f.avx512_vnni || f.avx512f);
#if defined(__x86_64__) && defined(__GNUC__)
  // The compiler's own detection, an independent implementation.
  EXPECT_EQ(f.avx2, __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(f.fma, __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(f.avx512f, __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(f.avx512_vnni, __builtin_cpu_supports("avx512vnni") != 0);
#endif
  EXPECT_FALSE(cpu_model_name().empty());
}

}  // namespace
}  // namespace ts
