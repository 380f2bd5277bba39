// Layers with known input statistics: what error feedback, descent and refit achieve, against
// results of an independent simulation (512 inputs, Gaussian weights, groups of 128; the reference
// varies by about 4 % with its random numbers, so do ours).
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "quantize/ternary_fit.h"

namespace ts {
namespace {

constexpr int64_t kInputs = 512;
constexpr int64_t kRows = 512;
constexpr double kTolerance = 0.08;  // both sides vary

std::vector<float> gaussian(int64_t n, std::mt19937_64& engine) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values)
    v = normal(engine);
  return values;
}

/// Rows of a random orthogonal matrix (Gram-Schmidt, twice).
std::vector<double> random_basis(std::mt19937_64& engine) {
  std::normal_distribution<double> normal;
  std::vector<double> q(static_cast<size_t>(kInputs * kInputs));
  for (double& v : q)
    v = normal(engine);
  for (int64_t i = 0; i < kInputs; ++i) {
    double* row = q.data() + i * kInputs;
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t j = 0; j < i; ++j) {
        const double* other = q.data() + j * kInputs;
        double dot = 0;
        for (int64_t k = 0; k < kInputs; ++k)
          dot += row[k] * other[k];
        for (int64_t k = 0; k < kInputs; ++k)
          row[k] -= dot * other[k];
      }
    }
    double norm = 0;
    for (int64_t k = 0; k < kInputs; ++k)
      norm += row[k] * row[k];
    for (int64_t k = 0; k < kInputs; ++k)
      row[k] /= std::sqrt(norm);
  }
  return q;
}

/// Eigenvalues i^-power in a random basis; channel i scaled by scales[i] (empty = 1).
SecondMoment spectrum(double power, std::mt19937_64& engine,
                      const std::vector<double>& scales = {}) {
  const std::vector<double> q = random_basis(engine);
  std::vector<double> full(static_cast<size_t>(kInputs * kInputs), 0.0);
  for (int64_t k = 0; k < kInputs; ++k) {
    const double value = std::pow(static_cast<double>(k + 1), -power);
    const double* v = q.data() + k * kInputs;
    for (int64_t i = 0; i < kInputs; ++i) {
      for (int64_t j = 0; j <= i; ++j)
        full[static_cast<size_t>(i * kInputs + j)] += value * v[i] * v[j];
    }
  }
  std::vector<double> sums;
  for (int64_t i = 0; i < kInputs; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const double scale =
          scales.empty() ? 1.0 : scales[static_cast<size_t>(i)] * scales[static_cast<size_t>(j)];
      sums.push_back(full[static_cast<size_t>(i * kInputs + j)] * scale);
    }
  }
  return SecondMoment(kInputs, std::move(sums), 1.0);
}

class LayerSimulation : public testing::Test {
 protected:
  /// Relative to the expected loss of no output at all.
  double loss(const std::vector<float>& w, const SecondMoment& moment, const LossMetric& metric,
              const TernaryOptions& options, int n_planes = -1) {
    const TernaryMatrix m = fit_ternary(w, kRows, kInputs, &metric, options, pool_);
    check_matrix(m, options.sparsity);
    std::vector<float> error(w.size());
    dequantize(m, error, n_planes);
    for (size_t i = 0; i < w.size(); ++i)
      error[i] -= w[i];
    return layer_loss(error, kRows, moment, pool_) / (static_cast<double>(kRows) * moment.trace());
  }
  static TernaryOptions feedback(int sweeps) {
    TernaryOptions options;
    options.method = TernaryMethod::kGptq;
    options.refine_sweeps = sweeps;
    options.pair_passes = 0;  // the reference has none
    return options;
  }
  static void expect_near(double value, double reference, const std::string& what,
                          double tolerance = kTolerance) {
    EXPECT_NEAR(value, reference, tolerance * reference) << what;
  }

  ThreadPool pool_{2};
  std::mt19937_64 engine_{17};
};

TEST_F(LayerSimulation, OnePlane) {
  struct Row {
    double power, rounded, fed_back, refined, descended;
    double tolerance = kTolerance;
  };
  for (const Row& row :
       {Row{0.0, 0.1877, 0.1877, 0.1877, 0.1877}, Row{0.5, 0.1857, 0.1628, 0.1520, 0.1524},
        Row{1.0, 0.1877, 0.0857, 0.0758, 0.0813}, Row{1.5, 0.1877, 0.0252, 0.0212, 0.0293, 0.13}}) {
    const SecondMoment moment = spectrum(row.power, engine_);
    const LossMetric metric(moment, 0.01, pool_);
    const std::vector<float> w = gaussian(kRows * kInputs, engine_);
    const std::string what = "power " + std::to_string(row.power);
    TernaryOptions plain;
    plain.pair_passes = 0;
    const double rounded = loss(w, moment, metric, plain);
    expect_near(rounded, row.rounded, what + ", rounded");
    const double fed_back = loss(w, moment, metric, feedback(0));
    expect_near(fed_back, row.fed_back, what + ", feedback", row.tolerance);
    expect_near(loss(w, moment, metric, feedback(4)), row.refined, what + ", refined",
                row.tolerance);
    plain.refine_sweeps = 6;
    expect_near(loss(w, moment, metric, plain), row.descended, what + ", descent alone",
                row.tolerance);
    expect_near(rounded / fed_back / metric.predicted_gain(), 1.0, what + ", gain", 0.2);
  }
}

// What the descent by single weights leaves on the table.
TEST_F(LayerSimulation, PairMoves) {
  const SecondMoment moment = spectrum(1.0, engine_);
  const LossMetric metric(moment, 0.1, pool_);
  const std::vector<float> w = gaussian(kRows * kInputs, engine_);
  for (const int planes : {1, 2}) {
    TernaryOptions options = feedback(4);
    options.n_planes = planes;
    options.plane_fit = PlaneFit::kFree;
    const double without = loss(w, moment, metric, options);
    options.pair_passes = 1;
    const double once = loss(w, moment, metric, options);
    options.pair_passes = 3;
    EXPECT_LT(once, 0.97 * without);
    EXPECT_LT(loss(w, moment, metric, options), once);
  }
}

TEST_F(LayerSimulation, SeveralPlanes) {
  const SecondMoment moment = spectrum(1.0, engine_);
  const LossMetric metric(moment, 0.01, pool_);
  const std::vector<float> w = gaussian(kRows * kInputs, engine_);
  TernaryOptions options = feedback(4);
  const double one = loss(w, moment, metric, options);
  options.n_planes = 2;
  options.plane_fit = PlaneFit::kTied;
  const double tied = loss(w, moment, metric, options);
  expect_near(tied, 0.01050, "tied");
  options.plane_fit = PlaneFit::kFree;
  EXPECT_LT(loss(w, moment, metric, options), tied);
  options.plane_fit = PlaneFit::kProgressive;
  options.prefix_weight = 0;
  const double alone = loss(w, moment, metric, options, 1);
  const double progressive = loss(w, moment, metric, options);
  EXPECT_GT(progressive, tied);
  EXPECT_LT(progressive, 0.0119 * (1 + kTolerance));  // nine levels with the ratio 3:1 fixed
  // A weight on the first plane alone buys much of it for little of both.
  options.prefix_weight = 0.1;
  EXPECT_LT(loss(w, moment, metric, options, 1), 0.6 * alone);
  EXPECT_LT(loss(w, moment, metric, options), 1.3 * progressive);
  options.plane_fit = PlaneFit::kGreedy;
  EXPECT_EQ(loss(w, moment, metric, options, 1), one);
  EXPECT_LT(loss(w, moment, metric, options), 0.35 * one);
}

TEST_F(LayerSimulation, SparsePatterns) {
  const SecondMoment moment = spectrum(1.0, engine_);
  const LossMetric metric(moment, 0.01, pool_);
  const std::vector<float> w = gaussian(kRows * kInputs, engine_);
  struct Row {
    Sparsity sparsity;
    double fed_back, refined;
  };
  for (const Row& row : {Row{kDense, 0.0853, 0.0758}, Row{{1, 3}, 0.0909, 0.0815},
                         Row{kOneToTwoOfFour, 0.1244, 0.1090}, Row{kThreeOfFour, 0.1325, 0.1142},
                         Row{kTwoOfFour, 0.1403, 0.1223}}) {
    const std::string what = std::to_string(row.sparsity.min_nonzero) + " to " +
                             std::to_string(row.sparsity.max_nonzero);
    TernaryOptions options = feedback(0);
    options.sparsity = row.sparsity;
    expect_near(loss(w, moment, metric, options), row.fed_back, what + ", feedback");
    options.refine_sweeps = 4;
    expect_near(loss(w, moment, metric, options), row.refined, what + ", refined");
  }
}

// Channels of very different energy: feedback alone gains little, with the rotation a lot.
TEST_F(LayerSimulation, RotationTurnsChannelEnergiesIntoGain) {
  std::normal_distribution<double> normal;
  std::vector<double> scales(static_cast<size_t>(kInputs));
  for (double& s : scales)
    s = std::exp(normal(engine_));
  SecondMoment moment = spectrum(1.0, engine_, scales);
  const std::vector<float> w = gaussian(kRows * kInputs, engine_);
  const LossMetric plain(moment, 0.01, pool_);
  const double trace = moment.trace();
  const double unrotated = loss(w, moment, plain, feedback(0));
  TernaryOptions weighted = feedback(0);
  weighted.weight_scales = true;
  EXPECT_LT(loss(w, moment, plain, weighted), 0.9 * unrotated);

  std::vector<int8_t> signs(static_cast<size_t>(kInputs));
  for (int8_t& s : signs)
    s = (engine_() & 1) != 0 ? 1 : -1;
  const Rotation rotation(kInputs, kInputs, signs);
  std::vector<float> rotated(w.size());
  for (int64_t r = 0; r < kRows; ++r)
    rotation.forward(w.data() + r * kInputs, rotated.data() + r * kInputs);
  const double before = layer_loss(w, kRows, moment, pool_);
  moment.rotate(rotation, pool_);
  EXPECT_NEAR(moment.trace(), trace, 1e-9 * trace);
  EXPECT_NEAR(layer_loss(rotated, kRows, moment, pool_), before, 1e-5 * before);
  const LossMetric turned(moment, 0.01, pool_);
  EXPECT_LT(loss(rotated, moment, turned, feedback(0)), 0.45 * unrotated);
  EXPECT_GT(turned.predicted_gain(), plain.predicted_gain() * 0.999);
}

// With few tokens the statistics are noisy; more damping than the customary 1 % helps.
TEST_F(LayerSimulation, DampingForFewTokens) {
  const std::vector<double> q = random_basis(engine_);
  const int64_t n_tokens = kInputs;
  const std::vector<float> z = gaussian(n_tokens * kInputs, engine_);
  std::vector<float> x(z.size());
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t k = 0; k < kInputs; ++k) {
      const double amount =
          z[static_cast<size_t>(t * kInputs + k)] / std::sqrt(static_cast<double>(k + 1));
      for (int64_t i = 0; i < kInputs; ++i)
        x[static_cast<size_t>(t * kInputs + i)] +=
            static_cast<float>(amount * q[static_cast<size_t>(k * kInputs + i)]);
    }
  }
  std::vector<double> sums;
  for (int64_t i = 0; i < kInputs; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < kInputs; ++k)
        sum += q[static_cast<size_t>(k * kInputs + i)] * q[static_cast<size_t>(k * kInputs + j)] /
               static_cast<double>(k + 1);
      sums.push_back(sum);
    }
  }
  const SecondMoment truth(kInputs, std::move(sums), 1.0);
  SecondMoment seen(kInputs);
  seen.add(x.data(), n_tokens, nullptr, pool_);
  const std::vector<float> w = gaussian(kRows * kInputs, engine_);
  double previous = 1;
  for (const auto& [damping, reference] :
       {std::pair{0.003, 0.165}, {0.01, 0.143}, {0.03, 0.127}, {0.10, 0.110}}) {
    const LossMetric metric(seen, damping, pool_);
    EXPECT_EQ(metric.damping(), damping);
    const double reached = loss(w, truth, metric, feedback(0));
    EXPECT_NEAR(reached, reference, 0.12 * reference) << damping;
    EXPECT_LT(reached, previous);
    previous = reached;
  }
}

}  // namespace
}  // namespace ts
