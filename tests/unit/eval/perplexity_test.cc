#include "eval/perplexity.h"

#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "unit/eval/fake_logits.h"

namespace ts {
namespace {

using test::fake_logits;
using test::FakeLogits;

constexpr int64_t kVocab = 37;
constexpr int32_t kBos = 1;

std::vector<int32_t> text_tokens(size_t n, int32_t seed = 5) {
  std::vector<int32_t> ids(n);
  uint32_t state = static_cast<uint32_t>(seed);
  for (int32_t& id : ids) {
    state = state * 1664525u + 1013904223u;
    id = static_cast<int32_t>((state >> 16) % kVocab);
  }
  return ids;
}

/// -log p(target | context), in double from the definition.
double nll_of(const std::vector<int32_t>& context, int32_t target) {
  const auto logits = fake_logits(context, kVocab);
  double sum = 0;
  for (const float l : logits)
    sum += std::exp(static_cast<double>(l));
  return -std::log(std::exp(static_cast<double>(logits[static_cast<size_t>(target)])) / sum);
}

struct Expected {
  std::vector<double> nlls;
  double perplexity() const {
    return std::exp(std::accumulate(nlls.begin(), nlls.end(), 0.0) /
                    static_cast<double>(nlls.size()));
  }
  /// Standard error of the mean by its definition, times the perplexity.
  double std_error() const {
    const auto n = static_cast<double>(nlls.size());
    const double mean = std::accumulate(nlls.begin(), nlls.end(), 0.0) / n;
    double squares = 0;
    for (const double v : nlls)
      squares += (v - mean) * (v - mean);
    return std::sqrt(squares / n / (n - 1)) * perplexity();
  }
};

PerplexitySums score_all(const PerplexityPlan& plan) {
  FakeLogits source(kVocab);
  PerplexitySums sums;
  score_windows(source, plan, plan.windows.size(), [](int32_t id) { return size_t(id % 3); }, sums,
                {});
  return sums;
}

void expect_equal(const PerplexitySums& sums, const Expected& expected) {
  ASSERT_EQ(sums.n_tokens, expected.nlls.size());
  const PerplexityResult result = perplexity_of(sums);
  EXPECT_NEAR(result.perplexity, expected.perplexity(), 1e-5 * expected.perplexity());
  EXPECT_NEAR(result.std_error, expected.std_error(), 1e-4 * expected.std_error());
}

TEST(Perplexity, ChunksScoreTheSecondHalfOfEachWindow) {
  for (const int64_t n_ctx : {16, 17}) {
    for (const bool with_bos : {false, true}) {
      const auto tokens = text_tokens(100);
      const auto plan =
          plan_chunks(tokens, n_ctx, with_bos ? std::optional<int32_t>(kBos) : std::nullopt);
      // Logits at positions [n_ctx / 2, n_ctx - 1) of each window, BOS in the first place.
      Expected expected;
      for (size_t c = 0; c < tokens.size() / static_cast<size_t>(n_ctx); ++c) {
        const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(c * n_ctx);
        std::vector<int32_t> window(begin, begin + n_ctx);
        if (with_bos) window[0] = kBos;
        for (int64_t j = n_ctx / 2; j < n_ctx - 1; ++j)
          expected.nlls.push_back(
              nll_of({window.begin(), window.begin() + j + 1}, window[static_cast<size_t>(j) + 1]));
      }
      EXPECT_EQ(expected.nlls.size(), tokens.size() / static_cast<size_t>(n_ctx) *
                                          static_cast<size_t>(n_ctx - 1 - n_ctx / 2));
      expect_equal(score_all(plan), expected);
    }
  }
}

TEST(Perplexity, ChunksNeedTwoWindows) {
  EXPECT_THROW(plan_chunks(text_tokens(31), 16, {}), InvalidArgument);
  EXPECT_EQ(plan_chunks(text_tokens(32), 16, {}).windows.size(), 2u);
  EXPECT_THROW(plan_chunks(text_tokens(31), 1, {}), InvalidArgument);
}

TEST(Perplexity, SlidingScoresEveryTokenOnce) {
  const auto tokens = text_tokens(103);
  for (const int64_t stride : {1, 5, 7, 15}) {
    const int64_t n_ctx = 16;
    const auto plan = plan_sliding(tokens, n_ctx, stride, {});
    Expected expected;
    // Straight from the description: window k starts at k * stride and scores what is new.
    size_t done = 1;
    for (size_t begin = 0; done < tokens.size(); begin += static_cast<size_t>(stride)) {
      const size_t end = std::min(begin + n_ctx, tokens.size());
      for (size_t t = std::max(done, begin + 1); t < end; ++t)
        expected.nlls.push_back(nll_of({tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                        tokens.begin() + static_cast<std::ptrdiff_t>(t)},
                                       tokens[t]));
      done = std::max(done, end);
    }
    EXPECT_EQ(expected.nlls.size(), tokens.size() - 1);
    expect_equal(score_all(plan), expected);
  }
}

TEST(Perplexity, SlidingWithBosScoresTheFirstTokenToo) {
  const auto tokens = text_tokens(40);
  const auto plan = plan_sliding(tokens, 16, 15, kBos);
  Expected expected;
  size_t done = 0;
  for (size_t begin = 0; done < tokens.size(); begin += 15) {
    const size_t end = std::min<size_t>(begin + 15, tokens.size());
    for (size_t t = done; t < end; ++t) {
      std::vector<int32_t> context = {kBos};
      context.insert(context.end(), tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                     tokens.begin() + static_cast<std::ptrdiff_t>(t));
      expected.nlls.push_back(nll_of(context, tokens[t]));
    }
    done = end;
  }
  EXPECT_EQ(expected.nlls.size(), tokens.size());
  expect_equal(score_all(plan), expected);
}

TEST(Perplexity, SlidingRefusesStridesWithoutContext) {
  EXPECT_THROW(plan_sliding(text_tokens(40), 16, 0, {}), InvalidArgument);
  EXPECT_THROW(plan_sliding(text_tokens(40), 16, 16, {}), InvalidArgument);
  EXPECT_THROW(plan_sliding(text_tokens(40), 16, 16, kBos), InvalidArgument);
  EXPECT_THROW(plan_sliding(text_tokens(1), 16, 4, kBos), InvalidArgument);
  EXPECT_NO_THROW(plan_sliding(text_tokens(40), 16, 15, {}));
}

TEST(Perplexity, DocumentsAreIndependent) {
  const std::vector<std::vector<int32_t>> documents = {
      text_tokens(9, 1), text_tokens(50, 2), {7}, {}, text_tokens(12, 3)};
  const int64_t n_ctx = 21;
  const auto with_bos = plan_documents(documents, n_ctx, kBos);
  EXPECT_EQ(with_bos.n_truncated, 1u);
  Expected expected;
  for (const auto& document : documents) {
    std::vector<int32_t> context = {kBos};
    for (const int32_t id : document) {
      if (context.size() == static_cast<size_t>(n_ctx)) break;
      expected.nlls.push_back(nll_of(context, id));
      context.push_back(id);
    }
  }
  expect_equal(score_all(with_bos), expected);

  // Without BOS nothing predicts a document's first token.
  Expected bare;
  for (const auto& document : documents) {
    for (size_t t = 1; t < std::min(document.size(), static_cast<size_t>(n_ctx)); ++t)
      bare.nlls.push_back(nll_of(
          {document.begin(), document.begin() + static_cast<std::ptrdiff_t>(t)}, document[t]));
  }
  expect_equal(score_all(plan_documents(documents, n_ctx, {})), bare);
  EXPECT_THROW(plan_documents({{}, {}}, n_ctx, kBos), InvalidArgument);
}

TEST(Perplexity, SplitsDocuments) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split_documents("a|| b \n||||c||", "||", -1), (Parts{"a", "b", "c"}));
  EXPECT_EQ(split_documents("a||b||c", "||", 2), (Parts{"a", "b"}));
  EXPECT_EQ(split_documents("", "||", -1), Parts{});
  EXPECT_EQ(split_documents("no separator", "||", -1), (Parts{"no separator"}));
  EXPECT_THROW(split_documents("a", "", -1), InvalidArgument);
}

TEST(Perplexity, CountsBytesOfScoredTokens) {
  const auto plan = plan_documents({{4, 5, 6}}, 16, kBos);
  const PerplexitySums sums = score_all(plan);
  EXPECT_EQ(sums.n_bytes, 4u % 3 + 5u % 3 + 6u % 3);
  const PerplexityResult result = perplexity_of(sums);
  EXPECT_NEAR(result.bits_per_byte, sums.nll / std::log(2.0) / 3.0, 1e-12);
}

TEST(Perplexity, ResumedRunsEndInTheSameBits) {
  const auto plan = plan_chunks(text_tokens(200), 16, kBos);
  const PerplexitySums whole = score_all(plan);
  FakeLogits source(kVocab);
  PerplexitySums sums;
  CancelToken cancel;
  Progress progress;
  progress.cancel = &cancel;
  const auto bytes = [](int32_t id) { return size_t(id % 3); };
  int seen = 0;
  EXPECT_THROW(score_windows(source, plan, plan.windows.size(), bytes, sums, progress,
                             [&](const PerplexitySums&) {
                               if (++seen == 3) cancel.cancel();
                             }),
               Cancelled);
  EXPECT_EQ(sums.n_windows, 3u);
  cancel.reset();
  score_windows(source, plan, plan.windows.size(), bytes, sums, progress);
  EXPECT_EQ(sums.n_windows, whole.n_windows);
  EXPECT_EQ(sums.nll, whole.nll);
  EXPECT_EQ(sums.nll_squared, whole.nll_squared);
  EXPECT_EQ(sums.n_bytes, whole.n_bytes);
}

TEST(Perplexity, NonFiniteLogitsAreAnError) {
  class Broken : public FakeLogits {
   public:
    using FakeLogits::FakeLogits;
    std::vector<float> logits_after(std::span<const int32_t>) const override {
      std::vector<float> logits(static_cast<size_t>(n_vocab()), 0.0F);
      logits[3] = std::numeric_limits<float>::quiet_NaN();
      return logits;
    }
  } source(kVocab);
  PerplexitySums sums;
  EXPECT_THROW(score_windows(source, plan_documents({{2, 3}}, 16, kBos), 1,
                             [](int32_t) { return size_t{1}; }, sums, {}),
               FormatError);
  EXPECT_EQ(sums.n_tokens, 0u);
}

TEST(Perplexity, LikelihoodIsStableForLargeLogits) {
  const std::vector<float> logits = {1e4F, 1e4F, -1e4F};
  EXPECT_NEAR(negative_log_likelihood(logits, 0), std::log(2.0), 1e-9);
  EXPECT_NEAR(negative_log_likelihood(logits, 2), 2e4 + std::log(2.0), 1e-3);
}

}  // namespace
}  // namespace ts
