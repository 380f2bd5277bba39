// The fits against hand calculations, brute force and independent reference code.
#include "quantize/ternary_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantize/feedback_sweep.h"
#include "quantize/fit_statistics.h"
#include "quantize/refine.h"
#include "support/error_matchers.h"
#include "unit/quantize/gaussian_values.h"

namespace ts {
namespace {

TernaryOptions options_of(TernaryMethod method, int64_t group = 128) {
  TernaryOptions options;
  options.method = method;
  options.group = group;
  return options;
}

/// Inputs whose neighbouring channels correlate.
SecondMoment correlated(int64_t size, int64_t n_tokens, unsigned seed, ThreadPool& pool) {
  std::vector<float> x = gaussian(n_tokens * size, seed);
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t i = 1; i < size; ++i)
      x[static_cast<size_t>(t * size + i)] += 0.9F * x[static_cast<size_t>(t * size + i - 1)];
  }
  SecondMoment moment(size);
  moment.add(x.data(), n_tokens, nullptr, pool);
  return moment;
}

SecondMoment diagonal(const std::vector<double>& values) {
  std::vector<double> sums;
  for (size_t i = 0; i < values.size(); ++i) {
    sums.insert(sums.end(), i, 0.0);
    sums.push_back(values[i]);
  }
  return SecondMoment(static_cast<int64_t>(values.size()), std::move(sums), 1.0);
}

double squared_error(std::span<const float> w, const TernaryMatrix& m,
                     const std::vector<double>& h = {}) {
  std::vector<float> fitted(w.size());
  dequantize(m, fitted);
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    const double d = static_cast<double>(fitted[i]) - w[i];
    sum += (h.empty() ? 1.0 : h[i]) * d * d;
  }
  return sum;
}

TEST(TernaryFit, HandChecks) {
  ThreadPool pool(1);
  const std::vector<float> w = {3, -2.5F, 2, 1, -0.5F, 0.2F};
  const TernaryMatrix m = fit_ternary(w, 1, 6, nullptr, options_of(TernaryMethod::kMse), pool);
  EXPECT_THAT(m.planes[0].codes, testing::ElementsAre(1, -1, 1, 0, 0, 0));
  EXPECT_EQ(m.planes[0].scales[0], 2.5F);
  EXPECT_NEAR(squared_error(w, m), 1.79, 1e-5);

  const std::vector<double> h = {1, 1, 1, 4, 1, 1};
  const LossMetric metric(diagonal(h), 0, pool);
  const TernaryMatrix weighted =
      fit_ternary(w, 1, 6, &metric, options_of(TernaryMethod::kMse), pool);
  EXPECT_THAT(weighted.planes[0].codes, testing::ElementsAre(1, -1, 1, 1, 0, 0));
  EXPECT_NEAR(weighted.planes[0].scales[0], 11.5 / 7, 1e-3);
  EXPECT_NEAR(squared_error(w, weighted, h), 4.647143, 1e-4);
}

// H = ((2, 1), (1, 2)): D = (1.5, 2), V12 = 0.5; the codes (1, 1) with scale 1 lose 0.42 on
// (0.9, 0.6).
TEST(TernaryFit, MetricHandCheck) {
  ThreadPool pool(1);
  const SecondMoment moment(2, {2, 1, 2}, 1.0);
  const LossMetric metric(moment, 0, pool);
  EXPECT_NEAR(metric.factor(), 0.5, 1e-12);
  EXPECT_NEAR(metric.conditional_variance()[0], 1.5 * 0.5, 1e-6);
  EXPECT_NEAR(metric.conditional_variance()[1], 2 * 0.5, 1e-6);
  EXPECT_NEAR(metric.feedback()[1], 0.5, 1e-6);
  EXPECT_NEAR(metric.predicted_gain(), 4 / 3.5, 1e-6);
  const std::vector<float> error = {0.1F, 0.4F};
  EXPECT_NEAR(layer_loss(error, 1, moment, pool), 0.42, 1e-6);
}

// The best code of every group, by trying all 3^n.
TEST(TernaryFit, EqualsBruteForce) {
  ThreadPool pool(1);
  std::mt19937_64 engine(3);
  std::uniform_real_distribution<float> exponent(-2, 1);
  for (int trial = 0; trial < 60; ++trial) {
    const int n = 1 + trial % 8;
    std::vector<float> w = gaussian(n, static_cast<unsigned>(trial));
    for (float& v : w)
      v *= std::exp(exponent(engine));
    std::vector<double> h(static_cast<size_t>(n), 1.0);
    if (trial % 2 != 0) {
      for (double& v : h)
        v = std::exp(exponent(engine));
    }
    int total = 1;
    for (int i = 0; i < n; ++i)
      total *= 3;
    double energy = 0;
    for (int i = 0; i < n; ++i)
      energy += h[static_cast<size_t>(i)] * w[static_cast<size_t>(i)] * w[static_cast<size_t>(i)];
    double best = energy;
    for (int number = 0; number < total; ++number) {
      double dot = 0;
      double norm = 0;
      for (int i = 0, rest = number; i < n; ++i, rest /= 3) {
        const int code = rest % 3 - 1;
        dot += h[static_cast<size_t>(i)] * code * w[static_cast<size_t>(i)];
        norm += h[static_cast<size_t>(i)] * code * code;
      }
      if (norm > 0) best = std::min(best, energy - dot * dot / norm);
    }
    const LossMetric metric(diagonal(h), 0, pool);
    const TernaryMatrix m = fit_ternary(w, 1, n, trial % 2 != 0 ? &metric : nullptr,
                                        options_of(TernaryMethod::kMse), pool);
    // The scale is rounded to 11 bits: up to 2^-24 of the energy.
    EXPECT_NEAR(squared_error(w, m, h), best, 3e-7 * energy) << "trial " << trial;
  }
}

// The least-absolute-error rule by trying every threshold.
TEST(TernaryFit, AbsoluteErrorEqualsBruteForce) {
  ThreadPool pool(1);
  for (unsigned trial = 0; trial < 30; ++trial) {
    const int64_t n = 1 + trial;
    const std::vector<float> w = gaussian(n, trial + 100);
    TernaryOptions options = options_of(TernaryMethod::kL1);
    options.threshold = trial % 2 != 0 ? 0.05 : 0.001;
    double sum = 0;
    for (const float v : w)
      sum += std::fabs(v);
    const auto loss_at = [&](double t) {
      std::vector<double> kept;
      for (const float v : w) {
        if (std::fabs(v) > t) kept.push_back(std::fabs(v));
      }
      std::sort(kept.begin(), kept.end());
      const size_t k = kept.size();
      const double a = k == 0 ? 0 : 0.5 * (kept[(k - 1) / 2] + kept[k / 2]);
      double loss = 0;
      for (const float v : w)
        loss += std::fabs(std::fabs(v) - (std::fabs(v) > t ? a : 0.0));
      const double relative = t / (sum / static_cast<double>(n));
      return loss / sum + *options.threshold * relative * relative;
    };
    double best = loss_at(0);
    for (const float v : w)
      best = std::min(best, loss_at(std::fabs(v)));
    const TernaryMatrix m = fit_ternary(w, 1, n, nullptr, options, pool);
    double t = 0;  // the largest magnitude that became 0
    for (size_t i = 0; i < w.size(); ++i) {
      if (m.planes[0].codes[i] == 0) t = std::max(t, static_cast<double>(std::fabs(w[i])));
    }
    EXPECT_NEAR(loss_at(t), best, 1e-9) << "trial " << trial;
  }
}

TEST(TernaryFit, RulesByHand) {
  ThreadPool pool(1);
  const std::vector<float> w = {0.1F, -0.2F, 0.3F, -0.4F,
                                0.5F, -0.6F, 0.7F, -1.2F};  // mean |w| 0.5
  const auto fit = [&](TernaryMethod method, std::optional<double> threshold) {
    TernaryOptions options = options_of(method);
    options.threshold = threshold;
    return fit_ternary(w, 1, 8, nullptr, options, pool).planes[0];
  };
  TernaryPlane p = fit(TernaryMethod::kAbsmean, {});
  EXPECT_EQ(p.scales[0], 0.5F);
  EXPECT_THAT(p.codes, testing::ElementsAre(0, 0, 1, -1, 1, -1, 1, -1));
  p = fit(TernaryMethod::kTopk, 0.25);
  EXPECT_THAT(p.codes, testing::ElementsAre(0, 0, 0, 0, 0, 0, 1, -1));
  EXPECT_NEAR(p.scales[0], 0.95, 1e-3);
  p = fit(TernaryMethod::kQuantile, 0.5);  // between 0.4 and 0.5
  EXPECT_THAT(p.codes, testing::ElementsAre(0, 0, 0, 0, 1, -1, 1, -1));
  EXPECT_NEAR(p.scales[0], 0.75, 1e-3);
  p = fit(TernaryMethod::kFixed, 1.0);  // mean -0.1, standard deviation 0.587
  EXPECT_THAT(p.codes, testing::ElementsAre(0, 0, 0, 0, 0, -1, 1, -1));
  p = fit(TernaryMethod::kFixed, 100.0);  // nothing is kept
  EXPECT_EQ(p.scales[0], 0);
}

/// Error feedback as it is usually written: with U, H^-1 = U' U, one row in double precision.
std::vector<int8_t> textbook_feedback(const std::vector<float>& w, const LossMetric& metric,
                                      int64_t group, std::vector<float>& scales) {
  const auto n = static_cast<int64_t>(w.size());
  const auto at = [n](int64_t i, int64_t j) { return static_cast<size_t>(i * n + j); };
  // Gauss-Jordan inverse, then the upper factor from the last row upwards: H^-1 = U' U.
  std::vector<double> a(metric.matrix(), metric.matrix() + n * n);
  std::vector<double> inverse(a.size(), 0.0);
  for (int64_t i = 0; i < n; ++i)
    inverse[at(i, i)] = 1;
  for (int64_t k = 0; k < n; ++k) {
    const double pivot = a[at(k, k)];
    for (int64_t j = 0; j < n; ++j) {
      a[at(k, j)] /= pivot;
      inverse[at(k, j)] /= pivot;
    }
    for (int64_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double factor = a[at(i, k)];
      for (int64_t j = 0; j < n; ++j) {
        a[at(i, j)] -= factor * a[at(k, j)];
        inverse[at(i, j)] -= factor * inverse[at(k, j)];
      }
    }
  }
  std::vector<double> u(a.size(), 0.0);  // u' lower: ordinary Cholesky of the inverse
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = inverse[at(i, j)];
      for (int64_t k = 0; k < j; ++k)
        sum -= u[at(k, i)] * u[at(k, j)];
      u[at(j, i)] = i == j ? std::sqrt(sum) : sum / u[at(j, j)];
    }
  }
  std::vector<double> now(w.begin(), w.end());
  std::vector<int8_t> codes;
  GroupFitter fitter(options_of(TernaryMethod::kMse, group));
  float scale = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (j % group == 0) {
      const std::vector<float> current(now.begin() + j, now.begin() + std::min(n, j + group));
      fitter.fit_scales(current.data(), nullptr, static_cast<int64_t>(current.size()), &scale);
      scales.push_back(scale);
    }
    const double x = now[static_cast<size_t>(j)];
    codes.push_back(static_cast<int8_t>(x > 0.5 * scale ? 1 : x < -0.5 * scale ? -1 : 0));
    const double error = (x - codes.back() * static_cast<double>(scale)) / u[at(j, j)];
    for (int64_t k = j; k < n; ++k)
      now[static_cast<size_t>(k)] -= error * u[at(j, k)];
  }
  return codes;
}

TEST(TernaryFit, FeedbackEqualsTextbookForm) {
  ThreadPool pool(1);
  for (const int64_t group : {8, 64, 128, 256}) {
    const int64_t n = 300;  // several blocks of columns and a short last group
    const SecondMoment moment = correlated(n, 900, 5, pool);
    const LossMetric metric(moment, 0.01, pool);
    const std::vector<float> w = gaussian(n, 6);
    TernaryOptions options = options_of(TernaryMethod::kGptq, group);
    options.refine_sweeps = 0;
    const TernaryMatrix m = fit_ternary(w, 1, n, &metric, options, pool);
    std::vector<float> scales;
    const std::vector<int8_t> codes = textbook_feedback(w, metric, group, scales);
    EXPECT_EQ(m.planes[0].codes, codes) << "group " << group;
    EXPECT_EQ(m.planes[0].scales, scales) << "group " << group;
  }
}

// With uncorrelated inputs of equal energy there is nothing to feed back.
TEST(TernaryFit, FeedbackWithoutCorrelationIsRounding) {
  ThreadPool pool(1);
  const int64_t n = 320;
  const LossMetric metric(diagonal(std::vector<double>(n, 3.0)), 0.05, pool);
  const std::vector<float> w = gaussian(20 * n, 8);
  for (const int planes : {1, 2}) {
    TernaryOptions options = options_of(TernaryMethod::kMse);
    options.n_planes = planes;
    options.plane_fit = PlaneFit::kFree;
    const TernaryMatrix rounded = fit_ternary(w, 20, n, nullptr, options, pool);
    options.method = TernaryMethod::kGptq;
    options.refine_sweeps = 0;
    const TernaryMatrix fed_back = fit_ternary(w, 20, n, &metric, options, pool);
    for (size_t p = 0; p < rounded.planes.size(); ++p) {
      EXPECT_EQ(fed_back.planes[p].codes, rounded.planes[p].codes);
      EXPECT_EQ(fed_back.planes[p].scales, rounded.planes[p].scales);
    }
  }
}

struct Case {
  TernaryMethod method;
  int n_planes;
  PlaneFit plane_fit;
  Sparsity sparsity;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {TernaryMethod::kMse, 1, PlaneFit::kProgressive, kDense},
      {TernaryMethod::kGptq, 1, PlaneFit::kProgressive, kDense},
      {TernaryMethod::kGptq, 1, PlaneFit::kProgressive, kTwoOfFour},
      {TernaryMethod::kGptq, 1, PlaneFit::kProgressive, kThreeOfFour},
      {TernaryMethod::kGptq, 1, PlaneFit::kProgressive, kOneToTwoOfFour},
      {TernaryMethod::kGptq, 2, PlaneFit::kProgressive, kDense},
      {TernaryMethod::kGptq, 2, PlaneFit::kFree, kDense},
      {TernaryMethod::kGptq, 2, PlaneFit::kTied, kDense},
      {TernaryMethod::kGptq, 2, PlaneFit::kGreedy, kTwoOfFour},
      {TernaryMethod::kGptq, 2, PlaneFit::kFree, kOneToTwoOfFour},
      {TernaryMethod::kGptq, 3, PlaneFit::kFree, kDense},
      {TernaryMethod::kGptq, 3, PlaneFit::kTied, kDense},
      {TernaryMethod::kAbsmean, 2, PlaneFit::kProgressive, kTwoOfFour},
      {TernaryMethod::kL1, 1, PlaneFit::kProgressive, kOneToTwoOfFour},
  };
  return all;
}

TernaryOptions options_of(const Case& c) {
  TernaryOptions options = options_of(c.method, 64);
  options.n_planes = c.n_planes;
  options.plane_fit = c.plane_fit;
  options.sparsity = c.sparsity;
  return options;
}

class EveryFit : public testing::TestWithParam<size_t> {};

// The same bits for any number of threads, only legal planes, exact ratios of tied planes, and
// zeros stay zeros.
TEST_P(EveryFit, IsDeterministicAndLegal) {
  const int64_t rows = 150;
  const int64_t cols = 224;  // the last group is short
  ThreadPool pool(1);
  const LossMetric metric(correlated(cols, 500, 9, pool), 0.05, pool);
  std::vector<float> w = gaussian(rows * cols, 10);
  std::fill_n(w.begin() + 3 * cols + 64, 64, 0.0F);
  const TernaryOptions options = options_of(cases()[GetParam()]);
  const TernaryMatrix m = fit_ternary(w, rows, cols, &metric, options, pool);
  check_matrix(m, options.sparsity);
  for (const int threads : {2, 3}) {
    ThreadPool other(threads);
    const TernaryMatrix again = fit_ternary(w, rows, cols, &metric, options, other);
    ASSERT_EQ(again.planes.size(), m.planes.size());
    for (size_t p = 0; p < m.planes.size(); ++p) {
      EXPECT_EQ(again.planes[p].codes, m.planes[p].codes);
      EXPECT_EQ(again.planes[p].scales, m.planes[p].scales);
    }
  }
  if (options.plane_fit == PlaneFit::kTied) {
    for (size_t i = 0; i < m.planes[0].scales.size(); ++i) {
      const float first = m.planes[0].scales[i];
      const float second = m.planes[1].scales[i];
      if (first > 0 && second > 0) {
        EXPECT_EQ(first * (options.n_planes == 2 ? 2 : 5),
                  second * (options.n_planes == 2 ? 3 : 9));
      }
    }
  }
}

// More refinement never makes any row worse under the metric that is refined.
TEST_P(EveryFit, RefinementNeverRaisesTheLoss) {
  const int64_t rows = 40;
  const int64_t cols = 192;
  ThreadPool pool(2);
  const SecondMoment moment = correlated(cols, 400, 12, pool);
  const LossMetric metric(moment, 0.1, pool);
  std::vector<double> damped_sums(moment.sums().begin(), moment.sums().end());
  for (int64_t i = 0; i < cols; ++i)
    damped_sums[static_cast<size_t>(i * (i + 1) / 2 + i)] +=
        0.1 * moment.trace() / static_cast<double>(cols) * moment.total_weight();
  const SecondMoment damped(cols, std::move(damped_sums), moment.total_weight());
  const std::vector<float> w = gaussian(rows * cols, 13);
  TernaryOptions options = options_of(cases()[GetParam()]);
  options.prefix_weight = 0;
  if (options.plane_fit == PlaneFit::kGreedy) options.n_planes = 1;
  if (options.method == TernaryMethod::kAbsmean) options.n_planes = 1;
  std::vector<double> previous(static_cast<size_t>(rows), std::numeric_limits<double>::infinity());
  for (const int sweeps : {0, 1, 2, 4}) {
    options.refine_sweeps = sweeps;
    const TernaryMatrix m = fit_ternary(w, rows, cols, &metric, options, pool);
    std::vector<float> error(w.size());
    dequantize(m, error);
    for (size_t i = 0; i < w.size(); ++i)
      error[i] -= w[i];
    double total_before = 0;
    double total = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double loss = layer_loss(std::span(error).subspan(static_cast<size_t>(r * cols), cols),
                                     1, damped, pool);
      EXPECT_LE(loss, previous[static_cast<size_t>(r)] * (1 + 1e-5)) << "row " << r;
      total_before += previous[static_cast<size_t>(r)];
      total += loss;
      previous[static_cast<size_t>(r)] = loss;
    }
    if (sweeps == 1) {
      EXPECT_LT(total, 0.999 * total_before);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, EveryFit, testing::Range(size_t{0}, cases().size()));

TEST(TernaryFit, RefusesWhatItCannotDo) {
  ThreadPool pool(1);
  const LossMetric metric(diagonal({1, 2, 3, 4, 5, 6, 7, 8}), 0, pool);
  std::vector<float> w = gaussian(16, 20);
  const auto refuse = [&](const TernaryOptions& options, const char* expected,
                          const LossMetric* used = nullptr, int64_t cols = 8) {
    const test::Thrown thrown =
        test::catch_error([&] { fit_ternary(w, 2, cols, used, options, pool); });
    EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(thrown.message, testing::HasSubstr(expected));
  };
  TernaryOptions options;
  options.method = TernaryMethod::kGptq;
  refuse(options, "statistics of the layer's inputs");
  options = {};
  options.refine_sweeps = 1;
  refuse(options, "refinement needs statistics");
  options.refine_sweeps = -1;
  refuse(options, "-1 refinement sweeps", &metric);
  options = {};
  options.pair_passes = -1;
  refuse(options, "-1 passes by pairs");
  options = {};
  options.prefix_weight = std::nan("");
  refuse(options, "weight nan");
  options = {};
  options.threshold = 0.5;
  refuse(options, "finds its own threshold");
  options.method = TernaryMethod::kTopk;
  options.threshold = std::nan("");
  refuse(options, "above 0, up to 1");
  options = {};
  options.search_threshold = true;
  refuse(options, "topk only");
  options = {};
  options.n_planes = 4;
  refuse(options, "4 planes");
  options = {};
  options.group = 0;
  refuse(options, "group of 0");
  options = {};
  options.sparsity = {3, 2};
  refuse(options, "3 to 2 nonzero");
  options.sparsity = kTwoOfFour;
  options.group = 6;
  refuse(options, "multiple of 4");
  options = {};
  options.method = TernaryMethod::kAbsmean;
  options.n_planes = 2;
  options.plane_fit = PlaneFit::kTied;
  refuse(options, "one after the other");
  options = {};
  refuse(options, "16 weights are not 2 rows of 9", nullptr, 9);
  w[0] = 1e9F;
  refuse(options, "binary16");
  w[0] = 1;
  w[11] = std::nanf("");
  const test::Thrown thrown = test::catch_error(
      [&] { fit_ternary(w, 2, 8, nullptr, options, pool, nullptr, "blk.0.attn_q.weight"); });
  EXPECT_EQ(thrown.code, ErrorCode::kFormat);
  EXPECT_THAT(thrown.message, testing::HasSubstr("blk.0.attn_q.weight"));
  EXPECT_THAT(thrown.message, testing::HasSubstr("row 1, column 3 is nan"));
}

// Rows of one or a few weights, weights too small for a scale, groups longer than the row.
TEST(TernaryFit, OddShapesAndSizes) {
  ThreadPool pool(2);
  for (const int64_t cols : {1, 3, 4, 129}) {
    const LossMetric metric(correlated(cols, 300, 30, pool), 0.1, pool);
    for (const float size : {1.0F, 1e-30F, 1e4F, 0.0F}) {
      std::vector<float> w = gaussian(3 * cols, 31);
      for (float& v : w)
        v = std::clamp(v, -1.0F, 1.0F) * size;
      for (const Case& c : cases()) {
        TernaryOptions options = options_of(c);
        options.group = 128;
        if (cols % 4 != 0) options.sparsity = kDense;
        const TernaryMatrix m = fit_ternary(w, 3, cols, &metric, options, pool);
        check_matrix(m, options.sparsity);
        if (size == 0.0F || size == 1e-30F) {
          EXPECT_EQ(fit_statistics(w, m).planes[0].zero_rate, 1);
        } else {
          EXPECT_LT(fit_statistics(w, m).relative_error, 1.0);
        }
      }
    }
  }
}

TEST(TernaryFit, CanBeCancelled) {
  ThreadPool pool(2);
  const LossMetric metric(diagonal(std::vector<double>(256, 1.0)), 0, pool);
  const std::vector<float> w = gaussian(256 * 256, 21);
  CancelToken cancel;
  cancel.cancel();
  EXPECT_THROW(fit_ternary(w, 256, 256, &metric, options_of(TernaryMethod::kGptq), pool, &cancel),
               Cancelled);
  EXPECT_THROW(LossMetric(diagonal(std::vector<double>(256, 1.0)), 0, pool, &cancel), Cancelled);
}

TEST(FitStatistics, ByHand) {
  const std::vector<float> w = {1, -1, 3, -3};
  const WeightStatistics s = weight_statistics(w);
  EXPECT_EQ(s.mean, 0);
  EXPECT_NEAR(s.rms, std::sqrt(5.0), 1e-12);
  EXPECT_NEAR(s.kurtosis, 41.0 / 25, 1e-12);
  EXPECT_NEAR(s.max_over_mean, 1.5, 1e-12);
  TernaryMatrix m{1, 4, {}};
  m.planes.push_back({4, {0, 0, 1, -1}, {3.0F}});
  FitStatistics f = fit_statistics(w, m);
  EXPECT_NEAR(f.relative_error, 0.1, 1e-12);
  EXPECT_NEAR(f.sqnr_db, 10, 1e-9);
  EXPECT_EQ(f.planes[0].zero_rate, 0.5);
  EXPECT_NEAR(f.planes[0].entropy_bits, 1.5, 1e-12);
  m.planes.push_back({4, {1, -1, 0, 0}, {1.0F}});
  f = fit_statistics(w, m);
  EXPECT_TRUE(std::isinf(f.sqnr_db));
  EXPECT_NEAR(f.joint_entropy_bits, 2, 1e-12);
}

}  // namespace
}  // namespace ts
