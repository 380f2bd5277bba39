// The same logits, bit for bit, whatever the number of threads, the size of the prefill chunks and
// the way the sequence was built up.
#include <atomic>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>
#include <tensorsharp/error.hpp>

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
      ids_.push_back(static_cast<int32_t>((i * 7919 + 13) % kVocab));
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

/// Families whose state is keys and values alone: any way of building it up gives the same bits.
class AttentionOnly : public Determinism {};
/// Families with recurrent layers: the same bits for pieces that end on the grid of 64 tokens.
class Hybrid : public Determinism {};

TEST_P(AttentionOnly, PieceByPieceEqualsAtOnce) {
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

TEST_P(AttentionOnly, CutAndContinueEqualsAColdRun) {
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

TEST_P(Hybrid, PiecesOnTheGridEqualAtOnceAndOthersAgree) {
  for (const bool exact : {false, true}) {
    const auto engine = load(2, 128, KvCacheType::kF32, exact);
    const auto expected = last(all_logits(*engine));
    std::vector<float> logits(kVocab);
    const auto session = engine->new_session();
    session->eval(std::span(ids_).first(64), {});
    session->eval(std::span(ids_).subspan(64, 128), {});
    for (size_t i = 192; i < ids_.size(); ++i)
      session->eval(std::span(ids_).subspan(i, 1), logits);
    EXPECT_EQ(logits, expected);
  }
  const auto engine = load(2, 128, KvCacheType::kF32, true);
  const auto expected = last(all_logits(*engine));
  std::vector<float> logits(kVocab);
  const auto uneven = engine->new_session();
  uneven->eval(std::span(ids_).first(37), {});
  uneven->eval(std::span(ids_).subspan(37, 91), {});
  uneven->eval(std::span(ids_).subspan(128), logits);
  for (size_t i = 0; i < logits.size(); ++i)
    EXPECT_NEAR(logits[i], expected[i], 1e-4);
}

TEST_P(Hybrid, SequencesAreResetForkedAndSaved) {
  const auto engine = load(2);
  const auto expected = last(all_logits(*engine));
  const auto session = engine->new_session();
  session->eval(std::span(ids_).first(128), {});
  const auto fork = session->fork();
  const std::string file = (directory_.path() / "session").string();
  session->save(file, false);
  std::vector<float> logits(kVocab);
  session->eval(std::vector<int32_t>(60, 5), logits);
  EXPECT_NE(logits, expected);
  session->reset();
  session->eval(ids_, logits);
  EXPECT_EQ(logits, expected);

  logits.assign(kVocab, 0);
  fork->eval(std::span(ids_).subspan(128), logits);
  EXPECT_EQ(logits, expected);
  const auto loaded = engine->new_session();
  loaded->eval(std::vector<int32_t>(7, 3), {});
  loaded->load(file);
  EXPECT_EQ(loaded->position(), 128);
  loaded->eval(std::span(ids_).subspan(128), logits);
  EXPECT_EQ(logits, expected);
}

TEST_P(Hybrid, CannotBeCutInTheMiddle) {
  const auto session = load(1)->new_session();
  session->eval(std::span(ids_).first(30), {});
  EXPECT_THROW(session->truncate(29), InvalidArgument);
  EXPECT_EQ(session->position(), 30);
  session->truncate(30);
  session->truncate(0);
  EXPECT_EQ(session->position(), 0);
}

TEST_P(Hybrid, AnotherPromptStartsAgainAndALongerOneContinues) {
  const auto engine = load(2);
  GenerateOptions options;
  options.max_tokens = 5;
  options.ignore_end = true;
  options.sampling.temperature = 0;
  const auto cold = engine->new_session()->generate(ids_, options);
  const auto session = engine->new_session();
  // A prompt that parts from the first one in the middle: the recurrent layers start again.
  std::vector<int32_t> other = ids_;
  other[100] = 7;
  session->generate(other, options);
  EXPECT_EQ(session->generate(ids_, options).token_ids, cold.token_ids);
  // One that goes on where the sequence stands is not computed again.
  std::vector<int32_t> longer(session->tokens().begin(), session->tokens().end());
  EXPECT_EQ(longer.back(), cold.token_ids.back());
  longer.push_back(9);
  const auto result = session->generate(longer, options);
  EXPECT_EQ(result.cached_tokens, static_cast<int64_t>(longer.size()) - 2);
}

TEST_P(Hybrid, AnInterruptedPassLeavesAUsableSession) {
  const auto engine = load(2, 64);
  const auto expected = last(all_logits(*engine));
  const auto session = engine->new_session();
  session->eval(std::span(ids_).first(64), {});
  const std::atomic<bool> up{true};
  GenerateOptions options;
  options.cancel = &up;
  EXPECT_EQ(session->generate(ids_, options).stop_reason, StopReason::kCancelled);
  EXPECT_EQ(session->position(), static_cast<int64_t>(session->tokens().size()));
  std::vector<float> logits(kVocab);
  session->eval(std::span(ids_).subspan(session->tokens().size()), logits);
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
                         testing::Values("llama", "qwen2", "qwen3", "gemma3", "qwen35"));
INSTANTIATE_TEST_SUITE_P(Families, AttentionOnly,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3"));
INSTANTIATE_TEST_SUITE_P(Families, Hybrid, testing::Values("qwen35"));

}  // namespace
}  // namespace ts
