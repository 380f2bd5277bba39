// Moments of layer inputs and the correction made of them.
#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quantize/input_correction.h"
#include "quantize/loss_metric.h"
#include "quantize/ternary_fit.h"
#include "support/error_matchers.h"
#include "unit/quantize/gaussian_values.h"

namespace ts {
namespace {

TEST(SecondMoment, EqualsDirectSums) {
  ThreadPool pool(2);
  const int64_t n = 150;
  const int64_t tokens = 300;
  const std::vector<float> x = gaussian(tokens * n, 1);
  std::vector<float> weights(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t)
    weights[static_cast<size_t>(t)] = t == 0 ? 0.0F : 0.5F;
  SecondMoment moment(n);
  moment.add(x.data(), tokens, weights.data(), pool);
  EXPECT_EQ(moment.total_weight(), 0.5 * (tokens - 1));
  for (const auto& [i, j] : {std::pair{0, 0}, {149, 149}, {149, 3}, {3, 149}, {127, 128}}) {
    double sum = 0;
    for (int64_t t = 1; t < tokens; ++t)
      sum += static_cast<double>(x[static_cast<size_t>(t * n + i)]) *
             x[static_cast<size_t>(t * n + j)];
    EXPECT_NEAR(moment.at(i, j), sum / (tokens - 1), 1e-5) << i << ' ' << j;
  }
  // Any number of threads; saved and read back; added in parts.
  ThreadPool three(3);
  SecondMoment again(n);
  again.add(x.data(), tokens, weights.data(), three);
  EXPECT_TRUE(std::equal(moment.sums().begin(), moment.sums().end(), again.sums().begin()));
  const SecondMoment copy(n, {moment.sums().begin(), moment.sums().end()}, moment.total_weight());
  again.add(copy);
  EXPECT_NEAR(again.trace(), moment.trace(), 1e-9);
}

TEST(SecondMoment, RotatesLikeItsInputs) {
  ThreadPool pool(2);
  const int64_t n = 96;
  const std::vector<float> x = gaussian(200 * n, 2);
  std::vector<int8_t> signs(static_cast<size_t>(n));
  for (size_t i = 0; i < signs.size(); ++i)
    signs[i] = i % 3 == 0 ? -1 : 1;
  const Rotation rotation(n, 32, signs);
  std::vector<float> turned(x.size());
  for (int64_t t = 0; t < 200; ++t)
    rotation.forward(x.data() + t * n, turned.data() + t * n);
  SecondMoment moment(n), expected(n);
  moment.add(x.data(), 200, nullptr, pool);
  moment.rotate(rotation, pool);
  expected.add(turned.data(), 200, nullptr, pool);
  CrossMoment cross(n), expected_cross(n);
  const std::vector<float> y = gaussian(200 * n, 3);
  std::vector<float> turned_y(y.size());
  for (int64_t t = 0; t < 200; ++t)
    rotation.forward(y.data() + t * n, turned_y.data() + t * n);
  cross.add(x.data(), y.data(), 200, nullptr, pool);
  cross.rotate(rotation, pool);
  expected_cross.add(turned.data(), turned_y.data(), 200, nullptr, pool);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_NEAR(moment.at(i, j), expected.at(i, j), 1e-5);
      const auto at = static_cast<size_t>(i * n + j);
      EXPECT_NEAR(cross.sums()[at] / 200, expected_cross.sums()[at] / 200, 1e-5);
    }
  }
  const Rotation narrow(32, 32);
  EXPECT_THROW(moment.rotate(narrow, pool), InvalidArgument);
}

TEST(SecondMoment, RefusesBadInput) {
  ThreadPool pool(1);
  SecondMoment moment(3);
  std::vector<float> x = {1, 2, 3, 4, std::numeric_limits<float>::infinity(), 6};
  const test::Thrown thrown = test::catch_error([&] { moment.add(x.data(), 2, nullptr, pool); });
  EXPECT_EQ(thrown.code, ErrorCode::kFormat);
  EXPECT_THAT(thrown.message, testing::HasSubstr("token 1, channel 1"));
  EXPECT_EQ(moment.total_weight(), 0);
  x[4] = 5;
  const std::vector<float> weights = {1, -1};
  EXPECT_THROW(moment.add(x.data(), 2, weights.data(), pool), InvalidArgument);
  EXPECT_THROW(SecondMoment(3, {1, 2, 3}, 1), InvalidArgument);
  EXPECT_THROW(SecondMoment(2, {1, 0, -1}, 1), InvalidArgument);
  EXPECT_THROW(SecondMoment(2, {1, 0, std::nan("")}, 1), InvalidArgument);
  EXPECT_THROW(SecondMoment(2, {1, 0, 1}, -1), InvalidArgument);
  EXPECT_THROW(SecondMoment(0), InvalidArgument);
  EXPECT_THROW(LossMetric(moment, 0.05, pool), InvalidArgument);  // no tokens
  EXPECT_THROW(LossMetric(SecondMoment(2, {1, 0, 1}, 1), -1, pool), InvalidArgument);
}

// A singular moment (fewer tokens than channels) needs damping, which is raised until it works.
TEST(LossMetric, RaisesDampingWhenSingular) {
  ThreadPool pool(1);
  const SecondMoment singular(2, {1, 1, 1}, 1.0);
  const LossMetric metric(singular, 0, pool);
  EXPECT_GT(metric.damping(), 0);
  EXPECT_TRUE(std::isfinite(metric.predicted_gain()));
  // V diag(D) V' is the matrix.
  const float* v = metric.feedback();
  const auto d = metric.conditional_variance();
  EXPECT_NEAR(d[0] + v[1] * v[1] * d[1], metric.matrix()[0], 1e-6);
  EXPECT_NEAR(v[1] * d[1], metric.matrix()[1], 1e-6);
}

// A wide matrix goes through the tiled factorization: V diag(D) V' must give it back.
TEST(LossMetric, FactorsGiveTheMatrixBack) {
  ThreadPool pool(2);
  const int64_t n = 450;
  const std::vector<float> x = gaussian(600 * n, 4);
  SecondMoment moment(n);
  moment.add(x.data(), 600, nullptr, pool);
  const LossMetric metric(moment, 0.02, pool);
  double trace = 0;
  for (int64_t i = 0; i < n; ++i) {
    trace += metric.matrix()[i * n + i];
    for (const int64_t j : {i, (i * 7) % n}) {
      const auto v = [&](int64_t r, int64_t k) {
        return r == k ? 1.0 : static_cast<double>(metric.feedback()[r * n + k]);
      };
      double sum = 0;
      for (int64_t k = std::max(i, j); k < n; ++k)
        sum += v(i, k) * metric.conditional_variance()[static_cast<size_t>(k)] * v(j, k);
      EXPECT_NEAR(sum, metric.matrix()[i * n + j], 1e-5);
    }
  }
  EXPECT_NEAR(trace / n, 1, 1e-5);
}

// y = x B with an invertible B: the corrected weights undo B.
TEST(InputCorrection, UndoesALinearChange) {
  ThreadPool pool(2);
  const int64_t n = 40;
  const int64_t tokens = 4000;
  const int64_t rows = 70;
  const std::vector<float> x = gaussian(tokens * n, 5);
  std::vector<float> y(x.size());
  for (int64_t t = 0; t < tokens; ++t) {  // each channel also carries some of its neighbour
    for (int64_t i = 0; i < n; ++i)
      y[static_cast<size_t>(t * n + i)] = 0.8F * x[static_cast<size_t>(t * n + i)] +
                                          0.3F * x[static_cast<size_t>(t * n + (i + 1) % n)];
  }
  CrossMoment cross(n);
  cross.add(x.data(), y.data(), tokens, nullptr, pool);
  SecondMoment seen(n);
  seen.add(y.data(), tokens, nullptr, pool);
  const std::vector<float> w = gaussian(rows * n, 6);
  const auto output_error = [&](const std::vector<float>& used) {
    double error = 0;
    double energy = 0;
    for (int64_t t = 0; t < 50; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        double wanted = 0;
        double got = 0;
        for (int64_t i = 0; i < n; ++i) {
          wanted += static_cast<double>(w[static_cast<size_t>(r * n + i)]) *
                    x[static_cast<size_t>(t * n + i)];
          got += static_cast<double>(used[static_cast<size_t>(r * n + i)]) *
                 y[static_cast<size_t>(t * n + i)];
        }
        error += (got - wanted) * (got - wanted);
        energy += wanted * wanted;
      }
    }
    return error / energy;
  };
  std::vector<float> half = w, full = w, none = w;
  correct_for_input_error(none, rows, cross, seen, 0, 1e-6, pool);
  EXPECT_EQ(none, w);
  correct_for_input_error(half, rows, cross, seen, 0.5, 1e-6, pool);
  correct_for_input_error(full, rows, cross, seen, 1, 1e-6, pool);
  const double before = output_error(w);
  EXPECT_GT(before, 0.1);
  EXPECT_NEAR(output_error(half), before / 4, 0.05 * before);
  EXPECT_LT(output_error(full), 1e-6);
  EXPECT_THROW(correct_for_input_error(full, rows, cross, seen, 2, 1e-6, pool), InvalidArgument);
  EXPECT_THROW(correct_for_input_error(full, rows, cross, seen, 1, 0, pool), InvalidArgument);
}

// One token drives three channels thousands of times as far as any other: the statistics of as many
// channels as a small feed-forward network has still factor with the damping asked for, the
// correction stays small where the inputs did not change, and the fit profits.
TEST(InputCorrection, OneEnormousActivationIsNoObstacle) {
  ThreadPool pool(2);
  constexpr int64_t n = 768;
  constexpr int64_t tokens = 1000;
  constexpr int64_t rows = 64;
  std::vector<float> x = gaussian(tokens * n, 7);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 1; i < n; ++i)
      x[static_cast<size_t>(t * n + i)] += 0.9F * x[static_cast<size_t>(t * n + i - 1)];
  }
  for (const int64_t i : {3, 400, 767})
    x[static_cast<size_t>(500 * n + i)] = 5000;
  std::vector<float> y = x;
  const std::vector<float> noise = gaussian(tokens * n, 8);
  for (size_t i = 0; i < y.size(); ++i)
    y[i] += 0.1F * noise[i];
  CrossMoment cross(n);
  cross.add(x.data(), y.data(), tokens, nullptr, pool);
  SecondMoment seen(n);
  seen.add(y.data(), tokens, nullptr, pool);
  const LossMetric metric(seen, 0.1, pool);
  EXPECT_EQ(metric.damping(), 0.1);

  const std::vector<float> w = gaussian(rows * n, 9);
  std::vector<float> corrected = w;
  correct_for_input_error(corrected, rows, cross, seen, 0.5, 0.1, pool);
  double change = 0, energy = 0;
  for (size_t i = 0; i < w.size(); ++i) {
    change += std::pow(static_cast<double>(corrected[i]) - static_cast<double>(w[i]), 2);
    energy += std::pow(static_cast<double>(w[i]), 2);
  }
  EXPECT_LT(change, 0.01 * energy);

  const auto loss_of = [&](TernaryMethod method, const LossMetric* used) {
    TernaryOptions options;
    options.method = method;
    std::vector<float> error(w.size());
    dequantize(fit_ternary(corrected, rows, n, used, options, pool), error);
    for (size_t i = 0; i < w.size(); ++i)
      error[i] -= corrected[i];
    return layer_loss(error, rows, seen, pool);
  };
  EXPECT_LT(loss_of(TernaryMethod::kGptq, &metric), 0.5 * loss_of(TernaryMethod::kMse, nullptr));
}

}  // namespace
}  // namespace ts
