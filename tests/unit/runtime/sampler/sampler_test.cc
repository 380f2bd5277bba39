// What the sampler promises to callers: checked options, seeds, non-finite logits, ties, greedy
// choice, penalties and their window, log-probabilities.
#include "runtime/sampler.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ts {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingOptions plain(float temperature, uint64_t seed = 1) {
  SamplingOptions o;
  o.temperature = temperature;
  o.top_k = 0;
  o.top_p = 1;
  o.seed = seed;
  return o;
}

std::vector<int32_t> draw(const SamplingOptions& o, std::span<const float> logits, int n) {
  Sampler s(o, static_cast<int64_t>(logits.size()));
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) {
    ids.push_back(s.sample(logits));
    s.accept(ids.back());
  }
  return ids;
}

template <typename Change>
std::string rejected(Change change) {
  SamplingOptions o;
  change(o);
  try {
    Sampler s(o, 10);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "accepted";
}

TEST(SamplerOptions, BadValuesNameOptionValueAndRange) {
  EXPECT_EQ(rejected([](auto& o) { o.top_p = 1.5F; }),
            "sampling option top_p = 1.5: expected 0 to 1 (1 = off)");
  EXPECT_THAT(rejected([](auto& o) { o.top_p = kNan; }), HasSubstr("top_p = nan"));
  EXPECT_THAT(rejected([](auto& o) { o.min_p = -0.5F; }), HasSubstr("min_p = -0.5"));
  EXPECT_THAT(rejected([](auto& o) { o.typical_p = 2; }), HasSubstr("typical_p = 2"));
  EXPECT_THAT(rejected([](auto& o) { o.temperature = -1; }), HasSubstr("temperature = -1"));
  EXPECT_THAT(rejected([](auto& o) { o.temperature = kInf; }), HasSubstr("temperature = inf"));
  EXPECT_THAT(rejected([](auto& o) { o.temperature = kNan; }), HasSubstr("temperature = nan"));
  EXPECT_THAT(rejected([](auto& o) { o.top_k = -1; }), HasSubstr("top_k = -1"));
  EXPECT_THAT(rejected([](auto& o) { o.repeat_penalty = 0; }), HasSubstr("repeat_penalty = 0"));
  EXPECT_THAT(rejected([](auto& o) { o.presence_penalty = kInf; }),
              HasSubstr("presence_penalty = inf"));
  EXPECT_THAT(rejected([](auto& o) { o.frequency_penalty = kNan; }),
              HasSubstr("frequency_penalty = nan"));
  EXPECT_THAT(rejected([](auto& o) { o.penalty_window = -2; }), HasSubstr("penalty_window = -2"));
  EXPECT_THAT(rejected([](auto& o) {
                o.order = {"top_k", "mirostat"};
              }),
              HasSubstr("unknown step \"mirostat\""));
  EXPECT_THAT(rejected([](auto& o) { o.order = {"top_k", "top_k"}; }), HasSubstr("listed twice"));
  EXPECT_EQ(rejected([](auto&) {}), "accepted");
}

TEST(SamplerOptions, WrongSizesAndIdsAreRejected) {
  EXPECT_THROW(Sampler(plain(1), 0), InvalidArgument);
  EXPECT_THROW(Sampler(plain(1), int64_t{1} << 40), InvalidArgument);
  Sampler s(plain(1), 4);
  EXPECT_THROW(s.accept(4), InvalidArgument);
  EXPECT_THROW(s.accept(-1), InvalidArgument);
  EXPECT_THROW(s.sample(std::vector<float>(3)), InvalidArgument);
  EXPECT_THROW(s.sample({}), InvalidArgument);
}

TEST(SamplerSeed, SameSeedSameTokensOtherSeedOthers) {
  const std::vector<float> logits(1000, 0.0F);
  const auto a = draw(plain(1.5F, 7), logits, 50);
  EXPECT_EQ(a, draw(plain(1.5F, 7), logits, 50));
  EXPECT_NE(a, draw(plain(1.5F, 8), logits, 50));
}

TEST(SamplerSeed, NoSeedIsRandomAndReported) {
  SamplingOptions o = plain(1.5F);
  o.seed.reset();
  std::set<uint64_t> seeds;
  for (int i = 0; i < 5; ++i)
    seeds.insert(Sampler(o, 10).seed());
  EXPECT_EQ(seeds.size(), 5u);
  Sampler first(o, 1000);
  o.seed = first.seed();
  Sampler second(o, 1000);
  const std::vector<float> logits(1000, 0.0F);
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(first.sample(logits), second.sample(logits));
}

// Expected ids from an independent implementation of the generator:
// floor(1000 * u) for xoshiro256** seeded with SplitMix64(7).
TEST(SamplerSeed, SequenceIsFixedForAllMachines) {
  const std::vector<float> logits(1000, 0.25F);
  EXPECT_THAT(draw(plain(1, 7), logits, 8), ElementsAre(700, 278, 839, 981, 990, 872, 60, 104));
}

TEST(SamplerNonFinite, EveryKindIsAFormatError) {
  for (const float temperature : {0.0F, 1.0F}) {
    Sampler s(plain(temperature), 3);
    EXPECT_THROW(s.sample(std::vector<float>{0, kNan, 1}), FormatError);
    EXPECT_THROW(s.sample(std::vector<float>{0, kInf, 1}), FormatError);
    EXPECT_THROW(s.sample(std::vector<float>{-kInf, -kInf, -kInf}), FormatError);
    EXPECT_EQ(s.sample(std::vector<float>{-kInf, 0, -kInf}), 1);  // and it goes on working
  }
  EXPECT_THROW(token_logprob(std::vector<float>{0, kNan}, 0), FormatError);
  EXPECT_THROW(top_logprobs(std::vector<float>{-kInf, -kInf}, 1), FormatError);
}

TEST(SamplerNonFinite, MaskedTokensAreNeverDrawn) {
  std::vector<float> logits(50, -kInf);
  logits[3] = logits[41] = -2;
  for (const char* step : {"top_k", "top_p", "min_p", "typical", "temperature"}) {
    SamplingOptions o = plain(1e6F);
    o.order = {step};
    o.top_k = 40;
    o.top_p = o.typical_p = 0.999F;
    o.min_p = 1e-30F;
    std::set<int32_t> seen;
    for (const int32_t id : draw(o, logits, 200))
      seen.insert(id);
    EXPECT_EQ(seen, (std::set<int32_t>{3, 41})) << step;
  }
}

TEST(SamplerGreedy, TiesGoToTheLowestId) {
  EXPECT_EQ(draw(plain(0), std::vector<float>{1, 5, 5, 5}, 1)[0], 1);
  SamplingOptions o = plain(1);
  o.top_k = 2;
  std::set<int32_t> seen;
  for (const int32_t id : draw(o, std::vector<float>{1, 5, 5, 5}, 100))
    seen.insert(id);
  EXPECT_EQ(seen, (std::set<int32_t>{1, 2}));
}

TEST(SamplerGreedy, TinyTemperatureIsGreedyWithoutOverflow) {
  const std::vector<float> logits{-3e38F, 3e38F, 2.9e38F};
  EXPECT_EQ(draw(plain(1e-40F), logits, 1)[0], 1);
}

TEST(SamplerPenalties, EachActsAtTemperatureZero) {
  const std::vector<float> logits{2.0F, 1.9F, -1.0F};
  const auto after_eight = [&](auto change) {
    SamplingOptions o = plain(0);
    change(o);
    Sampler s(o, 3);
    for (int i = 0; i < 8; ++i)
      s.accept(0);
    return s.sample(logits);
  };
  EXPECT_EQ(after_eight([](auto&) {}), 0);
  EXPECT_EQ(after_eight([](auto& o) { o.presence_penalty = 50; }), 1);
  EXPECT_EQ(after_eight([](auto& o) { o.repeat_penalty = 3; }), 1);
  EXPECT_EQ(after_eight([](auto& o) { o.frequency_penalty = 2; }), 1);
  EXPECT_EQ(after_eight([](auto& o) { o.frequency_penalty = 0.01F; }), 0);  // 8 * 0.01 < 0.1
  EXPECT_EQ(after_eight([](auto& o) { o.frequency_penalty = 0.013F; }), 1);
  // The window bounds what counts: 0 = nothing, 1 = one occurrence.
  EXPECT_EQ(after_eight([](auto& o) { o.presence_penalty = 50, o.penalty_window = 0; }), 0);
  EXPECT_EQ(after_eight([](auto& o) { o.frequency_penalty = 0.013F, o.penalty_window = 1; }), 0);
  EXPECT_EQ(after_eight([](auto& o) { o.presence_penalty = 50, o.order = {"temperature"}; }), 0);
}

TEST(SamplerPenalties, RepeatPenaltyPushesNegativeLogitsDown) {
  SamplingOptions o = plain(0);
  o.repeat_penalty = 2;
  Sampler s(o, 2);
  s.accept(0);
  EXPECT_EQ(s.sample(std::vector<float>{-1.0F, -1.5F}), 1);  // -1 becomes -2
}

TEST(SamplerPenalties, TokensLeaveTheWindow) {
  SamplingOptions o = plain(0);
  o.presence_penalty = 5;
  o.penalty_window = 3;
  Sampler s(o, 4);
  const std::vector<float> logits{3, 2, 1, 0};
  s.accept(0);
  EXPECT_EQ(s.sample(logits), 1);
  s.accept(1);
  s.accept(1);
  EXPECT_EQ(s.sample(logits), 2);  // 0, 1, 1 in the window
  s.accept(2);
  EXPECT_EQ(s.sample(logits), 0);  // 1, 1, 2
  for (int i = 0; i < 100; ++i)
    s.accept(3);
  EXPECT_EQ(s.sample(logits), 0);
}

TEST(SamplerLogprobs, AreThoseOfTheUnmodifiedDistribution) {
  const std::vector<float> logits{std::log(0.5F), std::log(0.125F), std::log(0.25F),
                                  std::log(0.125F)};
  EXPECT_NEAR(token_logprob(logits, 2), std::log(0.25), 1e-6);
  const auto top = top_logprobs(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].id, 0);
  EXPECT_EQ(top[1].id, 2);
  EXPECT_EQ(top[2].id, 1);  // tie with 3
  EXPECT_NEAR(top[2].logprob, std::log(0.125), 1e-6);
  EXPECT_EQ(top_logprobs(logits, 99).size(), 4u);
  EXPECT_TRUE(top_logprobs(logits, 0).empty());
  EXPECT_THROW(top_logprobs(logits, -1), InvalidArgument);
  EXPECT_THROW(token_logprob(logits, 4), InvalidArgument);
  EXPECT_THROW(token_logprob({}, 0), InvalidArgument);
  // Large offsets do not overflow.
  EXPECT_NEAR(token_logprob(std::vector<float>{3e38F, 3e38F}, 1), std::log(0.5), 1e-6);
}

TEST(Sampler, CanBeMoved) {
  Sampler a(plain(1, 7), 100);
  Sampler b = std::move(a);
  EXPECT_EQ(b.seed(), 7u);
  EXPECT_GE(b.sample(std::vector<float>(100, 0.0F)), 0);
}

}  // namespace
}  // namespace ts
