// Gradients against finite differences, operation by operation and through a whole pass; the
// recorded pass itself against an ordinary one.
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "quantize/blas_backend.h"
#include "quantize/distillation_loss.h"
#include "quantize/operation_gradients.h"
#include "quantize/tape_backend.h"

namespace ts {
namespace {

using Values = std::vector<float>;

class Random {
 public:
  Values operator()(size_t n, float scale = 1) {
    std::normal_distribution<float> normal;
    Values values(n);
    for (float& v : values)
      v = scale * normal(engine_);
    return values;
  }

 private:
  std::mt19937 engine_{7};
};

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// `gradient` must be that of `loss` at `x`: compared along several random directions.
void expect_gradient(Values& x, const Values& gradient, const std::function<double()>& loss,
                     const char* what, double tolerance = 2e-2) {
  Random random;
  for (int trial = 0; trial < 3; ++trial) {
    const Values direction = random(x.size());
    const Values start = x;
    const float step = 2e-3F;
    const auto at = [&](float t) {
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = start[i] + t * direction[i];
      return loss();
    };
    const double slope = (at(step) - at(-step)) / (2 * static_cast<double>(step));
    x = start;
    const double expected = dot(gradient, direction);
    EXPECT_NEAR(slope, expected, tolerance * (std::fabs(expected) + 0.1)) << what;
  }
}

TEST(OperationGradients, Norm) {
  Random random;
  Values x = random(24), w = random(8);
  const Values dy = random(24);
  Values dx(24);
  std::vector<double> dw(8);
  rms_norm_gradient(x, w, 1e-5F, dy, dx, dw);
  const auto loss = [&] {
    double sum = 0;
    for (size_t at = 0; at < 24; at += 8) {
      double squares = 0;
      for (size_t i = 0; i < 8; ++i)
        squares += static_cast<double>(x[at + i]) * x[at + i];
      for (size_t i = 0; i < 8; ++i)
        sum += static_cast<double>(dy[at + i]) * x[at + i] * w[i] / std::sqrt(squares / 8 + 1e-5);
    }
    return sum;
  };
  expect_gradient(x, dx, loss, "x");
  expect_gradient(w, Values(dw.begin(), dw.end()), loss, "w");
}

TEST(OperationGradients, GatedUnits) {
  Random random;
  for (const GatedUnit unit : {GatedUnit::kSilu, GatedUnit::kGeluTanh, GatedUnit::kSigmoid}) {
    Values gate = random(16), up = random(16);
    const Values dy = random(16);
    Values d_gate(16), d_up(16);
    gated_unit_gradient(unit, gate, up, dy, d_gate, d_up);
    const auto loss = [&] {
      double sum = 0;
      for (size_t i = 0; i < 16; ++i) {
        const double g = static_cast<double>(gate[i]);
        const double s = 1 / (1 + std::exp(-g));
        const double value =
            unit == GatedUnit::kSigmoid ? s
            : unit == GatedUnit::kSilu
                ? g * s
                : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
        sum += static_cast<double>(dy[i]) * value * static_cast<double>(up[i]);
      }
      return sum;
    };
    expect_gradient(gate, d_gate, loss, "gate");
    expect_gradient(up, d_up, loss, "up");
  }
}

TEST(DistillationLoss, IsADivergenceWithItsGradient) {
  Random random;
  ThreadPool pool(2);
  const int64_t d = 6;
  const Values e = random(static_cast<size_t>(40 * d));
  const Values original = random(static_cast<size_t>(3 * d));
  EXPECT_NEAR(distillation_loss(e, original, original, d, {}, pool), 0, 1e-5);
  Values model = original;
  model[0] += 1;
  model[8] -= 0.5F;
  Values gradient(model.size());
  const double loss = distillation_loss(e, original, model, d, gradient, pool);
  EXPECT_GT(loss, 0.1);
  expect_gradient(
      model, gradient, [&] { return distillation_loss(e, original, model, d, {}, pool); }, "model");
}

class Collected : public GradientSink {
 public:
  void matrix(const float* weight, std::span<const float> x, std::span<const float> dy,
              int64_t n_tokens) override {
    const size_t n_in = x.size() / static_cast<size_t>(n_tokens);
    const size_t n_out = dy.size() / static_cast<size_t>(n_tokens);
    Values& sum = matrices[weight];
    sum.resize(n_in * n_out);
    for (size_t t = 0; t < static_cast<size_t>(n_tokens); ++t) {
      for (size_t o = 0; o < n_out; ++o) {
        for (size_t i = 0; i < n_in; ++i)
          sum[o * n_in + i] += dy[t * n_out + o] * x[t * n_in + i];
      }
    }
  }
  void vector(const float* vector, std::span<const double> gradient) override {
    vectors[vector].assign(gradient.begin(), gradient.end());
  }
  std::unordered_map<const float*, Values> matrices, vectors;
};

/// Attention with norms, rotary embedding, a bias and a gated unit over a residual stream, written
/// against the backend as the models are.
class SmallLayer {
 public:
  SmallLayer(bool half_split, int64_t window) : window_(window) {
    CpuBackendOptions options;
    options.n_threads = 2;
    options.isa = "ref";
    options.exact = true;
    options.repack = false;
    blas = make_blas_backend(make_cpu_backend(options));
    tape = std::make_shared<TapeBackend>(blas);
    rope_.inverse_frequency = {1.0, 0.3};
    rope_.half_split = half_split;
    for (Values* w : {&wq, &wk, &wv, &wo, &wg})
      *w = random_(w == &wk || w == &wv ? kD * kHead : kD * kD, 0.4F);
    norm = random_(kD);
    bias = random_(kD);
    x0 = random_(kT * kD);
    for (const Values* w : {&wq, &wk, &wv, &wo, &wg})
      weights_.push_back(upload(*w));
    x_ = make(kD), normed_ = make(kD), q_ = make(kD), k_ = make(kHead), v_ = make(kHead),
    out_ = make(kD), gate_ = make(kD);
    cache_ = tape->make_kv_cache({kT, 1, kHead}, KvType::kF32);
  }
  static constexpr int64_t kT = 5, kHead = 4, kHeads = 2, kD = kHead * kHeads;

  Values run() {
    std::copy(x0.begin(), x0.end(), x_.row(0));
    Activation normed;
    normed.reset(normed_);
    tape->rms_norm(x_, norm.data(), 1e-5F, normed);
    const LinearJob qkv[] = {{weights_[0].get(), q_, bias.data(), nullptr, nullptr},
                             {weights_[1].get(), k_, nullptr, nullptr, nullptr},
                             {weights_[2].get(), v_, nullptr, nullptr, nullptr}};
    tape->linear(qkv, normed);
    tape->rms_norm(k_, head_norm.data(), kHead, 1e-5F, k_);
    tape->rope(q_, kHeads, kHead, 0, rope_);
    tape->rope(k_, 1, kHead, 0, rope_);
    AttentionArgs args;
    args.q = q_, args.k = k_, args.v = v_, args.out = out_;
    args.n_heads = kHeads, args.scale = 0.5F, args.window = window_;
    tape->attention(args, *cache_);
    Activation attended(out_);
    const LinearJob o[] = {{weights_[3].get(), q_, nullptr, nullptr, nullptr}};
    tape->linear(o, attended);
    tape->add(x_, q_);
    normed.reset(normed_);
    tape->rms_norm(x_, norm.data(), 1e-5F, normed);
    const LinearJob g[] = {{weights_[4].get(), gate_, nullptr, nullptr, nullptr}};
    tape->linear(g, normed);
    tape->gated_unit(GatedUnit::kSilu, gate_, normed_, gate_);
    tape->add(x_, gate_);
    return Values(x_.row(0), x_.row(0) + kT * kD);
  }

  Mat top() const { return x_; }
  std::shared_ptr<ReplayingBackend> blas;
  std::shared_ptr<TapeBackend> tape;
  Values wq, wk, wv, wo, wg, norm, bias, x0;
  Values head_norm{1.0F, 0.5F, 2.0F, 1.5F};

 private:
  std::shared_ptr<const Weight> upload(const Values& w) {
    TensorView view;
    view.type = TypeId::kF32;
    view.shape = Shape{kD, static_cast<int64_t>(w.size()) / kD};
    view.data = std::as_bytes(std::span(w));
    return tape->upload(view, nullptr, WeightUse::kMatrix, {});
  }
  Mat make(int64_t cols) {
    buffers_.push_back(tape->allocate(static_cast<size_t>(kT * cols), "a test"));
    return {buffers_.back().get(), 0, kT, cols, cols};
  }

  Random random_;
  int64_t window_;
  Rope rope_;
  std::vector<std::shared_ptr<const Weight>> weights_;
  std::vector<std::shared_ptr<Buffer>> buffers_;
  Mat x_, normed_, q_, k_, v_, out_, gate_;
  std::unique_ptr<KvCache> cache_;
};

class WholePass : public testing::TestWithParam<std::pair<bool, int64_t>> {};

TEST_P(WholePass, GradientsOfMatricesNormsAndBiases) {
  SmallLayer layer(GetParam().first, GetParam().second);
  const Values plain = layer.run();
  layer.tape->begin_recording();
  EXPECT_EQ(layer.run(), plain);
  Random random;
  const Values dy = random(plain.size());
  Collected collected;
  layer.tape->backward(layer.top(), dy, collected);
  layer.tape->end_recording();
  const auto loss = [&] { return dot(layer.run(), dy); };
  for (Values* w : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.wg})
    expect_gradient(*w, collected.matrices.at(w->data()), loss, "a matrix");
  expect_gradient(layer.bias, collected.vectors.at(layer.bias.data()), loss, "the bias");
  expect_gradient(layer.head_norm, collected.vectors.at(layer.head_norm.data()), loss,
                  "the norm of heads");
}
INSTANTIATE_TEST_SUITE_P(Tape, WholePass,
                         testing::Values(std::pair<bool, int64_t>{false, 0},
                                         std::pair<bool, int64_t>{true, 0},
                                         std::pair<bool, int64_t>{true, 2}));

TEST(Tape, TakesOtherVectors) {
  SmallLayer layer(false, 0);
  const Values plain = layer.run();
  const Values other(layer.bias.size(), 3.0F);
  layer.tape->replace_vector(layer.bias.data(), other.data());
  const Values changed = layer.run();
  EXPECT_NE(changed, plain);
  layer.bias = other;
  EXPECT_EQ(layer.run(), changed);
}

TEST(PassMemo, TakesWhatWasComputedBefore) {
  SmallLayer layer(false, 0);
  const Values plain = layer.run();
  PassMemo memo;
  layer.blas->replay(&memo, true);
  EXPECT_EQ(layer.run(), plain);
  EXPECT_EQ(memo.n_results(), 6U);  // five products, one attention
  // Matrices that were used up to there do not matter any more; a memo that ends earlier does.
  layer.wq.assign(layer.wq.size(), 0.0F);
  layer.blas->replay(&memo, false);
  EXPECT_EQ(layer.run(), plain);
  layer.blas->replay(nullptr, false);
  EXPECT_NE(layer.run(), plain);
}

}  // namespace
}  // namespace ts
