// Memory limits as the system states them, and the plan made from them.
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

#include "backend/cpu/cpu_backend.h"
#include "format/gguf.h"
#include "model/model.h"
#include "runtime/memory_limits.h"
#include "runtime/plan.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

class Limits : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = directory_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  AvailableMemory available() const { return available_memory(directory_.path()); }
  test::TempDir directory_;
};

TEST_F(Limits, TheMachine) {
  write("proc/meminfo", "MemTotal:       16000 kB\nMemAvailable:   8000 kB\n");
  EXPECT_EQ(available().bytes, 8000u * 1024);
  EXPECT_EQ(available().limit_name, "MemAvailable");
}

TEST_F(Limits, ControlGroupVersion2AtAnyLevel) {
  write("proc/meminfo", "MemAvailable: 8000000 kB\n");
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/inner/memory.max", "max\n");
  write("sys/fs/cgroup/outer/inner/memory.current", "1000\n");
  EXPECT_EQ(available().limit_name, "MemAvailable");
  write("sys/fs/cgroup/outer/memory.max", "5000000\n");
  write("sys/fs/cgroup/outer/memory.current", "3000000\n");
  EXPECT_EQ(available().bytes, 2000000u);
  EXPECT_EQ(available().limit_name, "cgroup memory.max");
  // Cached file pages can be taken back.
  write("sys/fs/cgroup/outer/memory.stat", "anon 1\nactive_file 7\ninactive_file 500000\n");
  EXPECT_EQ(available().bytes, 2500000u);
  write("sys/fs/cgroup/outer/memory.current", "9000000\n");
  EXPECT_EQ(available().bytes, 0u);
}

TEST_F(Limits, ControlGroupVersion1) {
  write("proc/meminfo", "MemAvailable: 8000000 kB\n");
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/job\n");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(available().limit_name, "MemAvailable");
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4000\n");
  EXPECT_EQ(available().bytes, 3995u);
  EXPECT_EQ(available().limit_name, "cgroup memory.limit_in_bytes");
}

TEST_F(Limits, GarbageIsNoLimit) {
  write("proc/meminfo", "MemAvailable: 10 kB\n");
  write("proc/self/cgroup", "\nx\n0::\n0::/../..\n::::\n");
  write("sys/fs/cgroup/memory.max", "-5 apples\n");
  EXPECT_EQ(available().bytes, 10240u);
}

class Plan : public testing::Test {
 protected:
  void SetUp() override {
    test::TinyModel m;
    m.context = 4096;
    const auto path = directory_.path() / "m.gguf";
    test::write_tiny_model(m, path);
    file_ = GgufFile::open(path);
    model_ = load_model(file_, nullptr);
  }
  MemoryPlan plan(const LoadOptions& options, uint64_t available) {
    return plan_memory(*model_, *file_, options, {available, "test limit"});
  }
  static uint64_t item(const MemoryPlan& plan, const std::string& name) {
    for (const auto& i : plan.items) {
      if (i.name == name) return i.bytes;
    }
    ADD_FAILURE() << "no item " << name;
    return 0;
  }
  test::TempDir directory_;
  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<const Model> model_;
};

TEST_F(Plan, CountsWhatIsNeeded) {
  LoadOptions options;
  options.context = 1000;
  const MemoryPlan p = plan(options, UINT64_MAX);
  EXPECT_TRUE(p.fits);
  EXPECT_EQ(p.context, 1000);
  EXPECT_EQ(p.model_context, 4096);
  EXPECT_EQ(item(p, "weights"), model_->weight_bytes());
  EXPECT_EQ(item(p, "KV cache"), 1000u * 2 /*layers*/ * 2 /*k, v*/ * 2 * 64 * 2 /*f16*/);
  uint64_t sum = 0;
  for (const auto& i : p.items)
    sum += i.bytes;
  EXPECT_EQ(p.total_bytes, sum);
  options.kv = KvCacheType::kF32;
  EXPECT_EQ(item(plan(options, UINT64_MAX), "KV cache"), 2 * item(p, "KV cache"));
  // The plan is what the backend then allocates.
  CpuBackendOptions one_thread;
  one_thread.n_threads = 1;
  const auto backend = make_cpu_backend(one_thread);
  for (const int64_t head_dim : {8, 64, 80}) {
    for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
      const KvShape shape{100, 3, head_dim};
      EXPECT_EQ(backend->make_kv_cache(shape, type)->bytes(),
                100 * kv_bytes_per_position(shape, type));
    }
  }
}

TEST_F(Plan, DefaultContextIsTheModelsOr8192) {
  EXPECT_EQ(plan({}, UINT64_MAX).context, 4096);
  test::TinyModel big;
  big.context = 100000;
  const auto path = directory_.path() / "big.gguf";
  test::write_tiny_model(big, path);
  const auto file = GgufFile::open(path);
  const auto model = load_model(file, nullptr);
  EXPECT_EQ(plan_memory(*model, *file, {}, {UINT64_MAX, ""}).context, 8192);
}

TEST_F(Plan, DefaultContextShrinksToWhatFits) {
  const MemoryPlan whole = plan({}, UINT64_MAX);
  const MemoryPlan half = plan({}, whole.total_bytes - item(whole, "KV cache") / 2);
  EXPECT_TRUE(half.fits);
  EXPECT_LT(half.context, 2049);
  EXPECT_GT(half.context, 1900);
}

TEST_F(Plan, AnAskedContextIsNotChangedButAdviceIsGiven) {
  LoadOptions options;
  options.context = 4096;
  const MemoryPlan whole = plan(options, UINT64_MAX);
  const MemoryPlan tight = plan(options, whole.total_bytes - item(whole, "KV cache") / 4);
  EXPECT_FALSE(tight.fits);
  EXPECT_EQ(tight.context, 4096);
  ASSERT_EQ(tight.advice.size(), 2u);  // a smaller context, 8-bit keys and values
  try {
    require_fit(plan(options, item(whole, "KV cache") / 2), "m.gguf");
    FAIL() << "accepted";
  } catch (const ResourceExhausted& error) {
    const std::string text = error.what();
    for (const char* word : {"m.gguf", "weights", "KV cache", "scratch", "4096", "test limit"})
      EXPECT_NE(text.find(word), std::string::npos) << text;
  }
  // The context that is proposed does fit.
  const std::string& advice = tight.advice[0];
  options.context = std::stoll(advice.substr(std::string("a context of ").size()));
  EXPECT_TRUE(plan(options, tight.available_bytes).fits);
  EXPECT_GE(options.context, 2900);
}

TEST_F(Plan, WeightsALittleTooLargeOnlyWarn) {
  LoadOptions options;
  options.context = 512;
  const MemoryPlan whole = plan(options, UINT64_MAX);
  EXPECT_NO_THROW(require_fit(plan(options, whole.total_bytes - item(whole, "weights") / 10), "m"));
  EXPECT_THROW(require_fit(plan(options, whole.total_bytes - item(whole, "weights") / 2), "m"),
               ResourceExhausted);
}

TEST_F(Plan, AbsurdContexts) {
  LoadOptions options;
  options.context = 1'000'000'000;
  EXPECT_FALSE(plan(options, uint64_t{1} << 36).fits);
  options.context = INT64_MAX;
  EXPECT_THROW(plan(options, UINT64_MAX), InvalidArgument);
  options.context = -1;
  EXPECT_THROW(plan(options, UINT64_MAX), InvalidArgument);
  options.context = 512;
  options.prefill_chunk = 100;
  EXPECT_THROW(plan(options, UINT64_MAX), InvalidArgument);
  EXPECT_THROW(Engine::load((directory_.path() / "m.gguf").string(),
                            [] {
                              LoadOptions o;
                              o.context = 1'000'000'000;
                              return o;
                            }()),
               ResourceExhausted);
}

TEST(FormatBytes, Units) {
  EXPECT_EQ(format_bytes(999), "999 bytes");
  EXPECT_EQ(format_bytes(1500), "1.5 kB");
  EXPECT_EQ(format_bytes(999'960'000), "1.0 GB");
  EXPECT_EQ(format_bytes(7'614'887'936), "7.6 GB");
}

}  // namespace
}  // namespace ts
