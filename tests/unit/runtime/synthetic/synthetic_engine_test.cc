// Models of random weights in memory: planned first, then the same engine as from a file.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "runtime/load_synthetic.h"
#include "runtime/plan.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::catch_error;
using ::testing::HasSubstr;

SyntheticModel tiny(std::string scheme = {}) {
  return SyntheticModel(find_synthetic_shape("qwen35-tiny"), {std::move(scheme), {}, 3});
}

std::vector<float> logits_of(const Engine& engine) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 150; ++i)
    ids.push_back(i * 7 % 1000);
  std::vector<float> logits(static_cast<size_t>(engine.info().n_vocab));
  engine.new_session()->eval(ids, logits);
  return logits;
}

uint64_t item(const MemoryPlan& plan, std::string_view name) {
  for (const MemoryPlan::Item& i : plan.items) {
    if (i.name == name) return i.bytes;
  }
  return 0;
}

TEST(SyntheticEngineTest, MemoryAndFileGiveTheSameEngine) {
  const SyntheticModel model = tiny();
  std::vector<std::string> order;
  LoadOptions options;
  options.n_threads = 2;
  options.on_plan = [&](const MemoryPlan& plan) {
    order.push_back("plan");
    EXPECT_TRUE(plan.fits);
  };
  Progress progress;
  progress.report = [&](std::string_view stage, uint64_t, uint64_t) {
    if (order.back() != stage) order.emplace_back(stage);
  };
  const SyntheticEngine made = load_synthetic(model, options, progress);
  EXPECT_THAT(order, ::testing::ElementsAre("plan", "preparing weights", "making weights"));
  EXPECT_GT(made.make_seconds, 0);
  EXPECT_EQ(made.engine->info().scheme, "ptq1_0");
  EXPECT_EQ(made.engine->info().n_parameters, model.n_parameters());
  const std::vector<float> logits = logits_of(*made.engine);
  EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float v) { return std::isfinite(v); }));
  double squares = 0;
  for (const float v : logits)
    squares += static_cast<double>(v) * v;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(logits.size())), 1.0, 0.3)
      << "activations do not keep their size";

  const test::TempDir dir;
  model.write(dir / "m.gguf", false, {});
  options.on_plan = nullptr;
  const auto loaded = Engine::load((dir / "m.gguf").string(), options);
  EXPECT_EQ(logits_of(*loaded), logits);
}

TEST(SyntheticEngineTest, FormsOfOneModelAreOneModel) {
  // The same codes and scales in two packings; both compute with the same int8 activations.
  const auto logits = [](const char* scheme) {
    return logits_of(*load_synthetic(tiny(scheme), {}, {}).engine);
  };
  EXPECT_EQ(logits("ptq1_0"), logits("pq2_0"));
}

TEST(SyntheticEngineTest, ThePlanCountsRecurrentStates) {
  const SyntheticModel model = tiny();
  const SyntheticImage image(model);
  const auto outline = load_model(image.file(), nullptr);
  LoadOptions options;
  options.context = 1000;
  const auto plan = [&](uint64_t available) {
    return plan_memory(*outline, *image.file(), options, {available, "test limit"});
  };
  // Three layers: six heads of 64 x 64, and three steps of 2 * 2 * 64 + 6 * 64 channels, in f32.
  constexpr uint64_t kState = 3 * (6 * 64 * 64 + 3 * 640) * sizeof(float);
  const MemoryPlan whole = plan(UINT64_MAX);
  EXPECT_EQ(item(whole, "recurrent state"), kState);
  EXPECT_EQ(item(whole, "remembered states"), 15 * kState);    // one for each 64 positions
  EXPECT_EQ(item(whole, "KV cache"), 1000u * 2 * 2 * 64 * 2);  // one layer has attention
  options.checkpoint_bytes = 2 * kState;
  EXPECT_EQ(item(plan(UINT64_MAX), "remembered states"), 2 * kState);
  options.checkpoint_bytes = 0;
  EXPECT_EQ(item(plan(UINT64_MAX), "remembered states"), 0u);

  // Weights on a disk may exceed the memory a little, weights in memory must not.
  options.repack = false;
  const MemoryPlan tight = plan(plan(UINT64_MAX).total_bytes - 1000);
  EXPECT_FALSE(tight.fits);
  EXPECT_NO_THROW(require_fit(tight, "m", WeightsOn::kDisk));
  const auto thrown = catch_error([&] { require_fit(tight, "m", WeightsOn::kMemory); });
  EXPECT_EQ(thrown.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(thrown.message, HasSubstr("test limit"));
}

TEST(SyntheticEngineTest, RepacksOnlyWhereCopiesFit) {
  const SyntheticModel model = tiny("ptq1_0");
  const SyntheticImage image(model);
  const auto outline = load_model(image.file(), nullptr);
  const auto plan = [&](const LoadOptions& options, uint64_t available, const char* limit) {
    return plan_memory(*outline, *image.file(), options, {available, limit});
  };
  LoadOptions options;
  options.context = 512;
  const bool can = repacks({}, TypeId::kPTQ1_0);  // on this machine
  const MemoryPlan whole = plan(options, UINT64_MAX, "test limit");
  EXPECT_EQ(whole.repacked, can);
  EXPECT_EQ(describe_plan(whole).find("repacked") != std::string::npos, can);
  EXPECT_FALSE(plan(options, whole.total_bytes - 1, "test limit").repacked);
  EXPECT_FALSE(plan(options, UINT64_MAX, "RLIMIT_AS").repacked);
  // A layout may need more than the file.
  EXPECT_GE(item(whole, "weights"), outline->weight_bytes());
  EXPECT_EQ(item(plan(options, UINT64_MAX, "RLIMIT_AS"), "weights"), outline->weight_bytes());
  options.repack = false;
  EXPECT_FALSE(plan(options, UINT64_MAX, "test limit").repacked);
  options.repack = true;
  options.exact = true;
  EXPECT_FALSE(plan(options, UINT64_MAX, "test limit").repacked);
  options.exact = false;
  options.isa = "ref";
  EXPECT_FALSE(plan(options, UINT64_MAX, "test limit").repacked);
}

TEST(SyntheticEngineTest, RepackedAndMappedWeightsGiveTheSameLogits) {
  LoadOptions mapped;
  mapped.repack = false;
  for (const char* scheme : {"ptq1_0", "pq2_0"})
    EXPECT_EQ(logits_of(*load_synthetic(tiny(scheme), {}, {}).engine),
              logits_of(*load_synthetic(tiny(scheme), mapped, {}).engine))
        << scheme;
}

}  // namespace
}  // namespace ts
