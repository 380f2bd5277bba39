// Error, zero rate and entropy on sources whose optimum is known: the numbers are those of the
// theory of scalar quantization (Lloyd-Max conditions), computed independently of this program.
// Sources are not sampled but tabulated at evenly spaced quantiles, which is accurate to 1e-5.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "hadamard/rotation.h"
#include "quantize/fit_statistics.h"
#include "quantize/ternary_fit.h"

namespace ts {
namespace {

constexpr int64_t kPoints = 1 << 17;

double normal_quantile(double p) {
  double low = -10;
  double high = 10;
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

/// kPoints values at the middles of equally likely intervals, scaled to variance 1.
std::vector<float> tabulate(const std::function<double(double)>& quantile) {
  std::vector<float> values(static_cast<size_t>(kPoints));
  double energy = 0;
  for (int64_t i = 0; i < kPoints; ++i) {
    const double x = quantile((static_cast<double>(i) + 0.5) / kPoints);
    values[static_cast<size_t>(i)] = static_cast<float>(x);
    energy += x * x;
  }
  for (float& v : values)
    v /= static_cast<float>(std::sqrt(energy / kPoints));
  return values;
}

const std::vector<float>& normal_source() {
  static const std::vector<float> values = tabulate(normal_quantile);
  return values;
}

struct Outcome {
  TernaryMatrix matrix;
  FitStatistics statistics;
};

/// The whole source as one group.
Outcome fit(const std::vector<float>& source, TernaryOptions options) {
  ThreadPool pool(1);
  options.group = kPoints;
  Outcome outcome;
  outcome.matrix = fit_ternary(source, 1, kPoints, nullptr, options, pool);
  check_matrix(outcome.matrix, options.sparsity);
  outcome.statistics = fit_statistics(source, outcome.matrix);
  return outcome;
}

Outcome fit(const std::vector<float>& source, TernaryMethod method, double threshold = -1) {
  TernaryOptions options;
  options.method = method;
  if (threshold >= 0) options.threshold = threshold;
  return fit(source, options);
}

void expect(const Outcome& o, double error, double zero_rate, double entropy, double scale) {
  EXPECT_NEAR(o.statistics.relative_error, error, 2e-5);
  EXPECT_NEAR(o.statistics.planes[0].zero_rate, zero_rate, 5e-4);
  EXPECT_NEAR(o.statistics.planes[0].entropy_bits, entropy, 5e-4);
  EXPECT_NEAR(o.matrix.planes[0].scales[0], scale, 1e-3);
}

TEST(GaussianSource, OptimalTernary) {
  const Outcome o = fit(normal_source(), TernaryMethod::kMse);
  expect(o, 0.190174, 0.459464, 1.535789, 1.224006);
  EXPECT_NEAR(o.statistics.sqnr_db, 7.2085, 5e-4);
}

TEST(GaussianSource, ThresholdRules) {
  expect(fit(normal_source(), TernaryMethod::kAbsmean), 0.263382, 0.31006, 1.58318, 0.79788);
  expect(fit(normal_source(), TernaryMethod::kFixed, 0.39894), 0.213042, 0.31006, 1.58318, 1.06800);
  expect(fit(normal_source(), TernaryMethod::kFixed, 0.55852), 0.191625, 0.42351, 1.55954, 1.18416);
  // The optimum's zero rate, asked for in two ways.
  expect(fit(normal_source(), TernaryMethod::kQuantile, 0.459464), 0.190174, 0.459464, 1.535789,
         1.224006);
  expect(fit(normal_source(), TernaryMethod::kTopk, 0.540536), 0.190174, 0.459464, 1.535789,
         1.224006);
  TernaryOptions searched;
  searched.method = TernaryMethod::kTopk;
  searched.search_threshold = true;
  EXPECT_NEAR(fit(normal_source(), searched).statistics.planes[0].zero_rate, 0.46, 1e-4);
  // Presets.
  EXPECT_NEAR(fit(normal_source(), TernaryMethod::kFixed).statistics.planes[0].zero_rate, 0.38292,
              5e-4);
  EXPECT_NEAR(fit(normal_source(), TernaryMethod::kQuantile).statistics.planes[0].zero_rate, 0.38,
              1e-4);
}

TEST(GaussianSource, BinarySign) {
  TernaryOptions options;
  options.sparsity = {4, 4};
  expect(fit(normal_source(), options), 0.363380, 0, 1, 0.79788);
}

TEST(GaussianSource, OtherSources) {
  const auto laplace =
      tabulate([](double p) { return p < 0.5 ? std::log(2 * p) : -std::log(2 - 2 * p); });
  // Its tail is long: the outermost interval alone carries an error of this size.
  const Outcome o = fit(laplace, TernaryMethod::kMse);
  EXPECT_NEAR(o.statistics.relative_error, 0.264241, 2e-4);
  EXPECT_NEAR(o.statistics.planes[0].zero_rate, 0.63212, 1e-3);
  EXPECT_NEAR(o.statistics.planes[0].entropy_bits, 1.31691, 2e-3);
  expect(fit(tabulate([](double p) { return p - 0.5; }), TernaryMethod::kMse), 1.0 / 9, 1.0 / 3,
         std::log2(3.0), 1.15470);
}

void expect_planes(PlaneFit plane_fit, int n_planes, double error, double entropy,
                   std::vector<double> scales, double tolerance = 2e-5) {
  TernaryOptions options;
  options.n_planes = n_planes;
  options.plane_fit = plane_fit;
  const Outcome o = fit(normal_source(), options);
  EXPECT_NEAR(o.statistics.relative_error, error, tolerance);
  if (entropy > 0) {
    EXPECT_NEAR(o.statistics.joint_entropy_bits, entropy, 5e-3);
  }
  for (size_t p = 0; p < scales.size(); ++p)
    EXPECT_NEAR(o.matrix.planes[p].scales[0], scales[p], 5e-3) << p;
}

TEST(GaussianSource, TwoPlanes) {
  expect_planes(PlaneFit::kFree, 2, 0.029024, 2.9963, {1.38014, 0.90771});
  expect_planes(PlaneFit::kProgressive, 2, 0.030527, 2.9110, {1.59024, 0.54904});
  expect_planes(PlaneFit::kTied, 2, 0.029093, 2.9976, {3 * 0.45852, 2 * 0.45852});
  expect_planes(PlaneFit::kGreedy, 2, 0.041826, 0, {1.22401, 0.48836}, 5e-5);
}

TEST(GaussianSource, ThreePlanes) {
  expect_planes(PlaneFit::kFree, 3, 0.003799, 0, {1.6068, 0.8894, 0.5427}, 3e-5);
  expect_planes(PlaneFit::kTied, 3, std::pow(10, -2.418), 0, {}, 5e-5);
}

/// Relative error of n_rows of 4096 random weights.
double grouped_error(const TernaryOptions& options, int64_t n_rows = 512) {
  static const std::vector<float> weights = [] {
    std::mt19937_64 engine(11);
    std::normal_distribution<float> normal;
    std::vector<float> values(1 << 21);
    for (float& v : values)
      v = normal(engine);
    return values;
  }();
  ThreadPool pool(2);
  const auto used = std::span(weights).first(static_cast<size_t>(n_rows) << 12);
  const TernaryMatrix m = fit_ternary(used, n_rows, 1 << 12, nullptr, options, pool);
  check_matrix(m, options.sparsity);
  return fit_statistics(used, m).relative_error;
}

// A fitted group beats the optimum of the population because it adapts.
TEST(GaussianSource, Groups) {
  TernaryOptions options;
  for (const auto& [group, error] :
       {std::pair{32, 0.17761}, {64, 0.18396}, {128, 0.18702}, {256, 0.18857}}) {
    options.group = group;
    EXPECT_NEAR(grouped_error(options), error, 0.0015) << group;
  }
  options.group = 128;
  options.method = TernaryMethod::kAbsmean;
  EXPECT_NEAR(grouped_error(options), 0.26111, 0.0015);
  options.method = TernaryMethod::kMse;
  options.n_planes = 2;
  for (const auto& [plane_fit, error] : {std::pair{PlaneFit::kTied, 0.02597},
                                         {PlaneFit::kFree, 0.02577},
                                         {PlaneFit::kProgressive, 0.02792}}) {
    options.plane_fit = plane_fit;
    EXPECT_NEAR(grouped_error(options, 128), error, 0.0006) << static_cast<int>(plane_fit);
  }
}

// Sources with heavy tails lose by them; blocks of 64 or more rotate them into Gaussian ones.
TEST(GaussianSource, RotationOfHeavyTails) {
  constexpr int64_t kWidth = 1024;
  constexpr int64_t kRowCount = 1024;
  std::mt19937_64 engine(12);
  std::exponential_distribution<float> exponential;
  std::normal_distribution<float> normal;
  std::student_t_distribution<float> student(4);
  const auto decibels = [&](const std::vector<float>& w, int64_t block) {
    std::vector<int8_t> signs(static_cast<size_t>(kWidth));
    for (int8_t& s : signs)
      s = (engine() & 1) != 0 ? 1 : -1;
    std::vector<float> turned = w;
    if (block > 0) {
      const Rotation rotation(kWidth, block, signs);
      for (int64_t r = 0; r < kRowCount; ++r)
        rotation.forward(w.data() + r * kWidth, turned.data() + r * kWidth);
    }
    ThreadPool pool(2);
    return fit_statistics(turned, fit_ternary(turned, kRowCount, kWidth, nullptr, {}, pool))
        .sqnr_db;
  };
  std::vector<float> laplace(static_cast<size_t>(kWidth * kRowCount));
  std::vector<float> heavy(laplace.size()), outliers(laplace.size());
  for (size_t i = 0; i < laplace.size(); ++i) {
    laplace[i] = (engine() & 1) != 0 ? exponential(engine) : -exponential(engine);
    heavy[i] = student(engine);
    outliers[i] = normal(engine) * (engine() % 200 == 0 ? 10.0F : 1.0F);
  }
  EXPECT_NEAR(decibels(laplace, 0), 5.92, 0.05);
  EXPECT_NEAR(decibels(laplace, 64), 7.29, 0.05);
  EXPECT_NEAR(decibels(laplace, 1024), 7.30, 0.05);
  EXPECT_NEAR(decibels(heavy, 0), 5.41, 0.08);
  EXPECT_NEAR(decibels(heavy, 64), 7.39, 0.05);
  EXPECT_NEAR(decibels(heavy, 1024), 7.32, 0.05);
  EXPECT_NEAR(decibels(outliers, 0), 5.84, 0.08);
  EXPECT_NEAR(decibels(outliers, 128), 7.78, 0.05);
  EXPECT_NEAR(decibels(outliers, 1024), 7.40, 0.05);
}

// Sparse patterns with one scale for many weights.
TEST(GaussianSource, SparsePatterns) {
  TernaryOptions options;
  options.group = 1 << 12;
  struct Row {
    Sparsity sparsity;
    double error;
  };
  for (const Row& row : {Row{{1, 1}, 0.4637}, Row{kTwoOfFour, 0.2945}, Row{kThreeOfFour, 0.2852},
                         Row{kOneToTwoOfFour, 0.2640}, Row{{0, 2}, 0.2583}, Row{{1, 3}, 0.2034},
                         Row{{0, 3}, 0.1996}}) {
    options.sparsity = row.sparsity;
    EXPECT_NEAR(grouped_error(options, 128), row.error, 0.0015)
        << row.sparsity.min_nonzero << " to " << row.sparsity.max_nonzero;
  }
}

// Two sparse planes chosen together, within 0.1 dB of the best that is known.
TEST(GaussianSource, SparsePlanes) {
  TernaryOptions options;
  options.group = 1 << 12;
  options.n_planes = 2;
  options.plane_fit = PlaneFit::kFree;
  for (const auto& [sparsity, decibels] : {std::pair{kTwoOfFour, 11.15},
                                           {kOneToTwoOfFour, 11.88},
                                           {kThreeOfFour, 11.81},
                                           {Sparsity{1, 3}, 14.59}}) {
    options.sparsity = sparsity;
    EXPECT_NEAR(-10 * std::log10(grouped_error(options, 32)), decibels, 0.1)
        << sparsity.min_nonzero << " to " << sparsity.max_nonzero;
  }
}

}  // namespace
}  // namespace ts
