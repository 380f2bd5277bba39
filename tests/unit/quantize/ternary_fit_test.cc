// The fits against hand calculations, brute force and the theory of Gaussian sources.
#include "quantize/ternary_fit.h"

#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantize/fit_statistics.h"
#include "support/error_matchers.h"

namespace ts {
namespace {

std::vector<float> gaussian(size_t n, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values)
    v = normal(engine);
  return values;
}

TernaryOptions options_of(TernaryMethod method, int64_t group = 128) {
  TernaryOptions options;
  options.method = method;
  options.group = group;
  return options;
}

TEST(TernaryFit, HandCheck) {
  ThreadPool pool(1);
  const std::vector<float> w = {3, -2.5F, 2, 1, -0.5F, 0.2F};
  const TernaryMatrix m = fit_ternary(w, 1, 6, nullptr, options_of(TernaryMethod::kMse), pool);
  EXPECT_THAT(m.planes[0].codes, testing::ElementsAre(1, -1, 1, 0, 0, 0));
  EXPECT_EQ(m.planes[0].scales[0], 2.5F);
}

// Theory: 7.281 dB for groups of 128, within the sampling error of 2 million weights.
TEST(TernaryFit, GaussianGroups) {
  ThreadPool pool(2);
  const std::vector<float> w = gaussian(1 << 21, 7);
  const TernaryMatrix m =
      fit_ternary(w, 1 << 11, 1 << 10, nullptr, options_of(TernaryMethod::kMse), pool);
  check_matrix(m);
  EXPECT_NEAR(fit_statistics(w, m).relative_error, 0.18702, 0.0015);
}

// Feedback and descent lower the loss under a metric, in that order.
TEST(TernaryFit, FeedbackBeatsRounding) {
  ThreadPool pool(2);
  constexpr int64_t kRows = 100, kCols = 320, kTokens = 2000;
  std::vector<float> x = gaussian(kTokens * kCols, 1);
  for (int64_t t = 0; t < kTokens; ++t) {  // neighbouring channels correlate
    for (int64_t i = 1; i < kCols; ++i)
      x[static_cast<size_t>(t * kCols + i)] += 0.9F * x[static_cast<size_t>(t * kCols + i - 1)];
  }
  SecondMoment moment(kCols);
  moment.add(x.data(), kTokens, nullptr, pool);
  const LossMetric metric(moment, 0.05, pool);
  const std::vector<float> w = gaussian(kRows * kCols, 2);
  const auto loss = [&](const TernaryOptions& options) {
    const TernaryMatrix m = fit_ternary(w, kRows, kCols, &metric, options, pool);
    check_matrix(m, options.sparsity);
    std::vector<float> error(w.size());
    dequantize(m, error);
    for (size_t i = 0; i < w.size(); ++i)
      error[i] -= w[i];
    return layer_loss(error, kRows, moment, pool) / layer_loss(w, kRows, moment, pool);
  };
  TernaryOptions options = options_of(TernaryMethod::kMse);
  const double rounded = loss(options);
  options.method = TernaryMethod::kGptq;
  options.refine_sweeps = 0;
  const double fed_back = loss(options);
  options.refine_sweeps = 4;
  const double refined = loss(options);
  EXPECT_LT(fed_back, 0.8 * rounded);
  EXPECT_LT(refined, 0.99 * fed_back);
  EXPECT_NEAR(rounded / fed_back, metric.predicted_gain(), 0.2 * metric.predicted_gain());
}

}  // namespace
}  // namespace ts
