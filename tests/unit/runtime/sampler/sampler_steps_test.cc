// Drawn frequencies against exact probabilities: every order of every subset of the steps is
// computed by a plain, obviously right model of the chain and compared with what is drawn.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "runtime/sampler.h"

namespace ts {
namespace {

using Distribution = std::map<int32_t, double>;  // id -> logit, of the tokens still in play

Distribution softmax(const Distribution& logits) {
  double max = -1e300, total = 0;
  for (const auto& [id, l] : logits)
    max = std::max(max, l);
  Distribution p;
  for (const auto& [id, l] : logits)
    total += p[id] = std::exp(l - max);
  for (auto& [id, x] : p)
    x /= total;
  return p;
}

/// Keeps the first ids by ascending key until they hold `share` of the probability.
void keep_share(Distribution& logits, const Distribution& key, double share) {
  const Distribution p = softmax(logits);
  std::vector<std::pair<double, int32_t>> sorted;
  for (const auto& [id, k] : key)
    sorted.emplace_back(k, id);
  std::sort(sorted.begin(), sorted.end());
  Distribution kept;
  double held = 0;
  for (const auto& [k, id] : sorted) {
    if (held >= share) break;
    kept[id] = logits.at(id);
    held += p.at(id);
  }
  logits = kept;
}

Distribution expected(const SamplingOptions& o, std::span<const float> raw,
                      const std::map<int32_t, int>& counts) {
  Distribution logits;
  for (size_t i = 0; i < raw.size(); ++i)
    logits[static_cast<int32_t>(i)] = raw[i];
  for (const std::string& step : o.order) {
    if (step == "penalties") {
      for (auto& [id, l] : logits) {
        const auto it = counts.find(id);
        if (it == counts.end()) continue;
        l = l > 0 ? l / o.repeat_penalty : l * o.repeat_penalty;
        l -= o.presence_penalty + static_cast<double>(o.frequency_penalty) * it->second;
      }
    } else if (step == "temperature") {
      for (auto& [id, l] : logits)
        l /= o.temperature;
    } else if (step == "top_k") {
      std::vector<std::pair<double, int32_t>> sorted;
      for (const auto& [id, l] : logits)
        sorted.emplace_back(-l, id);
      std::sort(sorted.begin(), sorted.end());
      Distribution kept;
      for (size_t i = 0; i < sorted.size() && i < static_cast<size_t>(o.top_k); ++i)
        kept[sorted[i].second] = -sorted[i].first;
      logits = kept;
    } else if (step == "top_p") {
      Distribution key;
      for (const auto& [id, l] : logits)
        key[id] = -l;
      keep_share(logits, key, o.top_p);
    } else if (step == "min_p") {
      const Distribution p = softmax(logits);
      double max = 0;
      for (const auto& [id, x] : p)
        max = std::max(max, x);
      Distribution kept;
      for (const auto& [id, l] : logits)
        if (p.at(id) >= o.min_p * max) kept[id] = l;
      logits = kept;
    } else if (step == "typical") {
      const Distribution p = softmax(logits);
      double entropy = 0;
      for (const auto& [id, x] : p)
        entropy -= x * std::log(x);
      Distribution key;
      for (const auto& [id, x] : p)
        key[id] = std::abs(-std::log(x) - entropy);
      keep_share(logits, key, o.typical_p);
    } else {
      ADD_FAILURE() << step;
    }
  }
  return softmax(logits);
}

SamplingOptions active_options() {
  SamplingOptions o;
  o.temperature = 1.3F;
  o.top_k = 9;
  o.top_p = 0.9F;
  o.min_p = 0.07F;
  o.typical_p = 0.85F;
  o.repeat_penalty = 1.2F;
  o.presence_penalty = 0.3F;
  o.frequency_penalty = 0.2F;
  return o;
}

const std::vector<float>& test_logits() {
  static const std::vector<float> logits{1.1F,  -0.3F, 2.0F, 0.4F,  -2.0F, 1.7F, 0.9F, -1.1F,
                                         0.05F, 1.35F, 0.6F, -0.8F, 0.25F, 1.9F, -3.F, 0.75F};
  return logits;
}

/// Pearson's statistic of n draws; also fails when an impossible token was drawn.
double chi_square(const SamplingOptions& o, const Distribution& p, int n) {
  Sampler s(o, static_cast<int64_t>(test_logits().size()));
  for (const int32_t id : {2, 2, 7, 13})
    s.accept(id);
  std::map<int32_t, int> drawn;
  for (int i = 0; i < n; ++i)
    ++drawn[s.sample(test_logits())];
  for (const auto& [id, c] : drawn)
    EXPECT_TRUE(p.contains(id)) << id;
  double x2 = 0;
  for (const auto& [id, prob] : p) {
    const double mean = prob * n;
    x2 += (drawn[id] - mean) * (drawn[id] - mean) / mean;
  }
  return x2;
}

const std::map<int32_t, int> kCounts = {{2, 2}, {7, 1}, {13, 1}};

std::string join(const std::vector<std::string>& steps) {
  std::string text;
  for (const auto& s : steps)
    text += s + " ";
  return text;
}

// Few draws of every order catch a wrong set of tokens; the test after this one checks the shape.
TEST(SamplerSteps, EveryOrderOfEverySubset) {
  const std::vector<std::string> all = {"min_p", "penalties", "temperature",
                                        "top_k", "top_p",     "typical"};
  int n_orders = 0;
  for (unsigned mask = 1; mask < 64; ++mask) {
    SamplingOptions o = active_options();
    o.seed = mask;
    o.order.clear();
    for (unsigned i = 0; i < 6; ++i)
      if (mask >> i & 1) o.order.push_back(all[i]);
    do {
      const Distribution p = expected(o, test_logits(), kCounts);
      // 99.9999 % quantile of chi-square with 15 degrees of freedom is 55.5.
      EXPECT_LT(chi_square(o, p, 600), 56) << join(o.order);
      ++n_orders;
    } while (std::next_permutation(o.order.begin(), o.order.end()));
  }
  EXPECT_EQ(n_orders, 1956);
}

TEST(SamplerSteps, FrequenciesMatchExactProbabilities) {
  for (const auto& order : std::vector<std::vector<std::string>>{
           {"temperature"},
           {"penalties", "top_k", "top_p", "min_p", "temperature"},
           {"top_k", "typical"},
           {"penalties"},
           {"temperature", "min_p"}}) {
    SamplingOptions o = active_options();
    o.seed = 12345;
    o.order = order;
    const Distribution p = expected(o, test_logits(), kCounts);
    EXPECT_LT(chi_square(o, p, 200'000), 45) << join(order);  // 99.99 % quantile, 15 degrees
  }
}

TEST(SamplerSteps, EmptyOrderIsTheDefaultOrder) {
  SamplingOptions a = active_options(), b = active_options();
  a.seed = b.seed = 3;
  a.order.clear();
  Sampler x(a, 16), y(b, 16);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(x.sample(test_logits()), y.sample(test_logits()));
}

TEST(SamplerSteps, ExtremeSettingsKeepOneToken) {
  for (const char* step : {"top_p", "min_p", "typical", "top_k"}) {
    SamplingOptions o;
    o.order = {step};
    o.top_p = o.typical_p = 0;
    o.min_p = 1;
    o.top_k = 1;
    Sampler s(o, 16);
    const int32_t id = s.sample(test_logits());
    for (int i = 0; i < 50; ++i)
      EXPECT_EQ(s.sample(test_logits()), id) << step;
    if (std::string(step) != "typical") {
      EXPECT_EQ(id, 2) << step;
    }
  }
}

// A vocabulary larger than the first sorted run, with ties across it: what is kept must not depend
// on how a library partitions. The kept set is compared with a full sort.
TEST(SamplerSteps, LargeVocabularyMatchesFullSort) {
  std::mt19937 random(5);
  std::vector<float> logits(5000);
  for (float& l : logits)
    l = static_cast<float>(random() % 41) * 0.1F;
  SamplingOptions o;
  o.order = {"top_p"};
  o.top_p = 0.5F;
  o.seed = 11;
  const Distribution p = expected(o, logits, {});
  Sampler s(o, 5000);
  std::map<int32_t, int> drawn;
  for (int i = 0; i < 3000; ++i)
    ++drawn[s.sample(logits)];
  for (const auto& [id, c] : drawn)
    EXPECT_TRUE(p.contains(id)) << id;
  EXPECT_GT(drawn.size(), p.size() / 2);
}

}  // namespace
}  // namespace ts
