// The same logits, bit for bit, whatever the number of threads, the size of the prefill chunks and
// the way the sequence was built up.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

constexpr int64_t kVocab = 300;

class Determinism : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    test::TinyModel m;
    m.architecture = GetParam();
    m.matrix_type = TypeId::kQ4_0;
    if (m.architecture == "gemma3") m.sliding_window = 70;
    path_ = (directory_.path() / "m.gguf").string();
    test::write_tiny_model(m, path_);
    for (int32_t i = 0; i < 200; ++i)
      ids_.push_back((i * 7919 + 13) % kVocab);
  }
  std::shared_ptr<const Engine> load(int threads = 1, int64_t chunk = 256,
                                     KvCacheType kv = KvCacheType::kF16, bool exact = false) {
    LoadOptions o;
    o.n_threads = threads;
    o.prefill_chunk = chunk;
    o.kv = kv;
    o.exact = exact;
    return Engine::load(path_, o);
  }
  std::vector<float> all_logits(const Engine& engine) {
    std::vector<float> logits(ids_.size() * kVocab);
    engine.new_session()->eval(ids_, logits, true);
    return logits;
  }
  std::vector<float> last(const std::vector<float>& all) { return {all.end() - kVocab, all.end()}; }
  test::TempDir directory_;
  std::string path_;
  std::vector<int32_t> ids_;
};

TEST_P(Determinism, ThreadsAndChunks) {
  for (const bool exact : {false, true}) {
    const auto expected = all_logits(*load(1, 256, KvCacheType::kF16, exact));
    for (const int threads : {1, 2, 3}) {
      for (const int64_t chunk : {64, 128, 256})
        EXPECT_EQ(all_logits(*load(threads, chunk, KvCacheType::kF16, exact)), expected)
            << threads << " threads, chunks of " << chunk << (exact ? ", exact" : "");
    }
  }
}

TEST_P(Determinism, PieceByPieceEqualsAtOnce) {
  for (const KvCacheType kv : {KvCacheType::kF32, KvCacheType::kF16, KvCacheType::kQ8}) {
    const auto engine = load(2, 128, kv);
    const auto expected = all_logits(*engine);
    // Token by token.
    const auto single = engine->new_session();
    std::vector<float> logits(kVocab);
    for (size_t i = 0; i < ids_.size(); ++i) {
      single->eval(std::span(ids_).subspan(i, 1), logits);
      ASSERT_EQ(logits, std::vector<float>(expected.begin() + static_cast<long>(i) * kVocab,
                                           expected.begin() + static_cast<long>(i + 1) * kVocab))
          << "token " << i;
    }
    // In uneven pieces.
    const auto uneven = engine->new_session();
    uneven->eval(std::span(ids_).first(37), {});
    uneven->eval(std::span(ids_).subspan(37, 91), {});
    uneven->eval(std::span(ids_).subspan(128), logits);
    EXPECT_EQ(logits, last(expected));
  }
}

TEST_P(Determinism, CutAndContinueEqualsAColdRun) {
  const auto engine = load(2);
  const auto expected = last(all_logits(*engine));
  const auto session = engine->new_session();
  session->eval(ids_, {});
  std::vector<float> logits(kVocab);
  session->truncate(77);
  session->eval(std::vector<int32_t>(60, 5), logits);
  EXPECT_NE(logits, expected);
  session->truncate(77);
  session->eval(std::span(ids_).subspan(77), logits);
  EXPECT_EQ(logits, expected);
  session->reset();
  session->eval(ids_, logits);
  EXPECT_EQ(logits, expected);
}

TEST_P(Determinism, SampledTextNeedsOnlyTheSeed) {
  GenerateOptions options;
  options.max_tokens = 24;
  options.ignore_end = true;
  options.sampling.temperature = 1.5F;
  options.sampling.seed = 42;
  const auto a = load(1, 64)->new_session()->generate(ids_, options);
  const auto b = load(3, 256)->new_session()->generate(ids_, options);
  EXPECT_EQ(a.token_ids, b.token_ids);
  EXPECT_EQ(a.seed, 42u);
  options.sampling.seed = 43;
  EXPECT_NE(load()->new_session()->generate(ids_, options).token_ids, a.token_ids);
}

TEST_P(Determinism, KvTypesAgreeRoughly) {
  // Exact products: int8 ones would turn each rounding of a key into steps of their own.
  const auto f32 = last(all_logits(*load(1, 256, KvCacheType::kF32, true)));
  double variance = 0;
  for (const float v : f32)
    variance += static_cast<double>(v) * v / kVocab;
  for (const auto& [kv, limit] : {std::pair{KvCacheType::kF16, 0.002}, {KvCacheType::kQ8, 0.05}}) {
    const auto other = last(all_logits(*load(1, 256, kv, true)));
    double error = 0;
    for (size_t i = 0; i < f32.size(); ++i)
      error += static_cast<double>(f32[i] - other[i]) * (f32[i] - other[i]) / kVocab;
    EXPECT_LT(std::sqrt(error / variance), limit);
    EXPECT_GT(error, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Determinism,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3"));

}  // namespace
}  // namespace ts
