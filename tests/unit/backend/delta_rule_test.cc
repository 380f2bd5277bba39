// Operations of gated-delta-rule layers against their definitions in double precision.
#include <cmath>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "backend_fixture.h"

namespace ts {
namespace {

using testing_backend::Matrix;
using testing_backend::random_floats;

std::shared_ptr<Backend> make_backend(int n_threads = 1, const char* isa = "auto") {
  CpuBackendOptions options;
  options.n_threads = n_threads;
  options.isa = isa;
  return make_cpu_backend(options);
}

RecurrentShape make_shape(int64_t n_k, int64_t n_v, int64_t dim, int64_t kernel = 4) {
  return {n_k, n_v, dim, (2 * n_k + n_v) * dim, kernel};
}

double silu(double x) {
  return x / (1.0 + std::exp(-x));
}

/// Inputs of a delta-rule layer, the rows of one sequence.
struct Inputs {
  RecurrentShape shape;
  int64_t n;
  std::vector<float> mixed, decay, beta, scale, bias;

  Inputs(const RecurrentShape& shape_in, int64_t n_in, uint32_t seed) : shape(shape_in), n(n_in) {
    const auto rows = static_cast<size_t>(n), heads = static_cast<size_t>(shape.n_v_heads);
    mixed = random_floats(rows * static_cast<size_t>(shape.conv_channels), seed);
    decay = random_floats(rows * heads, seed + 1, 2.0F);
    beta = random_floats(rows * heads, seed + 2, 2.0F);
    bias = random_floats(heads, seed + 3);
    for (size_t h = 0; h < heads; ++h)  // from almost no decay to a strong one
      scale.push_back(-0.01F * static_cast<float>(1 << (2 * h % 7)));
  }
};

/// The definition, token by token, in double precision. `state` [n_v][value][key] is updated.
std::vector<double> slow_delta_rule(const Inputs& in, std::vector<double>& state) {
  const auto dim = static_cast<size_t>(in.shape.head_dim);
  const auto n_k = static_cast<size_t>(in.shape.n_k_heads);
  const auto n_v = static_cast<size_t>(in.shape.n_v_heads);
  const auto channels = static_cast<size_t>(in.shape.conv_channels);
  state.resize(n_v * dim * dim);
  std::vector<double> out;
  for (size_t t = 0; t < static_cast<size_t>(in.n); ++t) {
    for (size_t h = 0; h < n_v; ++h) {
      const float* q = &in.mixed[t * channels + h % n_k * dim];
      const float* k = q + n_k * dim;
      const float* v = &in.mixed[t * channels + 2 * n_k * dim + h * dim];
      double q2 = 0, k2 = 0;
      for (size_t i = 0; i < dim; ++i) {
        q2 += static_cast<double>(q[i]) * static_cast<double>(q[i]);
        k2 += static_cast<double>(k[i]) * static_cast<double>(k[i]);
      }
      const double q_length = std::sqrt(q2), k_length = std::sqrt(k2);
      const double sum =
          static_cast<double>(in.decay[t * n_v + h]) + static_cast<double>(in.bias[h]);
      const double g = static_cast<double>(in.scale[h]) * std::log1p(std::exp(sum));
      const double b = 1.0 / (1.0 + std::exp(-static_cast<double>(in.beta[t * n_v + h])));
      for (size_t j = 0; j < dim; ++j) {
        double* row = &state[(h * dim + j) * dim];
        double p = 0, o = 0;
        for (size_t i = 0; i < dim; ++i) {
          row[i] *= std::exp(g);
          p += row[i] * static_cast<double>(k[i]) / k_length;
        }
        const double d = b * (static_cast<double>(v[j]) - p);
        for (size_t i = 0; i < dim; ++i) {
          row[i] += d * static_cast<double>(k[i]) / k_length;
          o += row[i] * static_cast<double>(q[i]) / q_length;
        }
        out.push_back(o / std::sqrt(static_cast<double>(dim)));
      }
    }
  }
  return out;
}

/// Runs the rows in passes of the given sizes, from position `first` on.
std::vector<float> run_delta_rule(Backend& backend, const Inputs& in, RecurrentState& state,
                                  const std::vector<int64_t>& passes, int64_t first = 0) {
  std::vector<float> out;
  int64_t done = 0;
  const auto rows = [&](const std::vector<float>& all, int64_t count, int64_t width) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(done * width);
    return Matrix(backend, count, width, std::vector<float>(begin, begin + count * width));
  };
  for (const int64_t count : passes) {
    const Matrix mixed = rows(in.mixed, count, in.shape.conv_channels);
    const Matrix decay = rows(in.decay, count, in.shape.n_v_heads);
    const Matrix beta = rows(in.beta, count, in.shape.n_v_heads);
    const Matrix result(backend, count, in.shape.n_v_heads * in.shape.head_dim, 3);
    DeltaRuleArgs args;
    args.mixed = mixed.mat;
    args.decay = decay.mat;
    args.beta = beta.mat;
    args.out = result.mat;
    args.decay_scale = in.scale.data();
    args.decay_bias = in.bias.data();
    args.first_position = first + done;
    args.norm_eps = 1e-6F;
    backend.delta_rule(args, state);
    const auto values = result.values();
    out.insert(out.end(), values.begin(), values.end());
    done += count;
  }
  EXPECT_EQ(done, in.n);
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_FALSE(std::isnan(got[i])) << i;
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
  }
  EXPECT_LT(worst, tolerance);
}

TEST(DeltaRule, ThreeTokensByHand) {
  // Two values per head, so that the numbers can be followed: normalised q and k, given g and beta
  // through their inverses, state checked through the outputs of unit queries.
  const auto backend = make_backend();
  Inputs in(make_shape(1, 1, 2), 3, 1);
  const float q[3][2] = {{.6F, .8F}, {1, 0}, {0, 1}}, k[3][2] = {{1, 0}, {.6F, .8F}, {.8F, -.6F}},
              v[3][2] = {{1, -2}, {.5F, 3}, {-1, 1}};
  const double g[3] = {-.1, -.5, -.25}, b[3] = {.9, .5, .7};
  in.bias = {0.25F};
  in.scale = {-1.0F};
  for (size_t t = 0; t < 3; ++t) {
    for (size_t i = 0; i < 2; ++i) {  // any length: they are normalised
      in.mixed[t * 6 + i] = 3 * q[t][i];
      in.mixed[t * 6 + 2 + i] = 0.5F * k[t][i];
      in.mixed[t * 6 + 4 + i] = v[t][i];
    }
    in.decay[t] = static_cast<float>(std::log(std::expm1(-g[t])) - 0.25);
    in.beta[t] = static_cast<float>(std::log(b[t] / (1 - b[t])));
  }
  const auto state = backend->make_recurrent_state(in.shape);
  const auto out = run_delta_rule(*backend, in, *state, {3});
  const double want[] = {0.381837662, -0.763675324, 0.422580891,
                         0.003366356, 0.435982685,  0.306131981};
  expect_near(out, {want, want + 6}, 1e-6);
  // The final state: no decay, nothing written (beta 0), read with unit vectors.
  Inputs probe(in.shape, 2, 2);
  probe.mixed = {1, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0};
  probe.decay = {-100, -100};
  probe.beta = {-100, -100};
  probe.bias = in.bias;
  probe.scale = in.scale;
  const auto columns = run_delta_rule(*backend, probe, *state, {2}, 3);
  const double root = std::sqrt(2.0);
  expect_near(columns,
              {-0.285031561 / root, 0.944624061 / root, 0.616572627 / root, 0.432935999 / root},
              1e-6);
}

class DeltaRuleShapes : public testing::TestWithParam<std::tuple<int, int, int, int>> {};

TEST_P(DeltaRuleShapes, MatchesTheDefinition) {
  const auto [n_k, n_v, dim, n] = GetParam();
  const auto backend = make_backend(2);
  const Inputs in(make_shape(n_k, n_v, dim), n, 7);
  std::vector<double> slow_state;
  const auto want = slow_delta_rule(in, slow_state);
  const auto state = backend->make_recurrent_state(in.shape);
  expect_near(run_delta_rule(*backend, in, *state, {n}), want, 1e-5);

  // Token by token everywhere: no pass holds a whole block of the grid.
  const auto again = backend->make_recurrent_state(in.shape);
  std::vector<int64_t> passes(static_cast<size_t>(n / 50), 50);
  if (n % 50 != 0) passes.push_back(n % 50);
  expect_near(run_delta_rule(*backend, in, *again, passes), want, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DeltaRuleShapes,
                         testing::Values(std::tuple(1, 1, 1, 70), std::tuple(1, 2, 8, 64),
                                         std::tuple(2, 4, 16, 200), std::tuple(2, 6, 33, 130),
                                         std::tuple(1, 3, 64, 129), std::tuple(2, 2, 70, 64),
                                         std::tuple(2, 6, 128, 192)));

TEST(DeltaRule, DoesNotDependOnThreadsPassesOrInstructionSet) {
  const Inputs in(make_shape(2, 6, 48), 300, 11);
  const auto reference = make_backend(1, "ref");
  const auto state = reference->make_recurrent_state(in.shape);
  const auto want = run_delta_rule(*reference, in, *state, {300});
  const auto final_state = reference->read_recurrent(*state);
  for (const int n_threads : {1, 2, 5}) {
    for (const auto& passes :
         std::vector<std::vector<int64_t>>{{300}, {64, 192, 44}, {256, 44}, {128, 64, 64, 1, 43}}) {
      const auto backend = make_backend(n_threads);
      const auto other = backend->make_recurrent_state(in.shape);
      EXPECT_EQ(run_delta_rule(*backend, in, *other, passes), want) << n_threads;
      EXPECT_EQ(backend->read_recurrent(*other), final_state) << n_threads;
    }
  }
}

TEST(DeltaRule, TheGridIsThatOfAbsolutePositions) {
  // 64 rows from position 30 on hold no whole block: the same bits as one row at a time.
  const auto backend = make_backend();
  const Inputs in(make_shape(1, 2, 32), 64, 13);
  const auto at_once = backend->make_recurrent_state(in.shape);
  const auto one_by_one = backend->make_recurrent_state(in.shape);
  EXPECT_EQ(run_delta_rule(*backend, in, *at_once, {64}, 30),
            run_delta_rule(*backend, in, *one_by_one, std::vector<int64_t>(64, 1), 30));
  EXPECT_EQ(backend->read_recurrent(*at_once), backend->read_recurrent(*one_by_one));
  // On the grid they are a block: the same numbers, not the same bits.
  const auto block = backend->make_recurrent_state(in.shape);
  const auto tokens = backend->make_recurrent_state(in.shape);
  EXPECT_NE(run_delta_rule(*backend, in, *block, {64}, 64),
            run_delta_rule(*backend, in, *tokens, std::vector<int64_t>(64, 1), 64));
}

TEST(DeltaRule, StrongDecayAndLongGatesStayFinite) {
  const auto backend = make_backend();
  Inputs in(make_shape(1, 1, 16), 128, 17);
  in.scale = {-20.0F};
  for (size_t t = 0; t < 128; ++t) {
    in.decay[t] = t % 3 == 0 ? 90.0F : -90.0F;
    in.beta[t] = t % 5 == 0 ? -120.0F : 120.0F;
  }
  for (size_t i = 0; i < 32; ++i)
    in.mixed[5 * 48 + i] = 0;  // q and k without a direction count as zero
  const auto state = backend->make_recurrent_state(in.shape);
  const auto out = run_delta_rule(*backend, in, *state, {128});
  for (const float v : out)
    ASSERT_TRUE(std::isfinite(v));
  for (size_t i = 0; i < 16; ++i)
    EXPECT_EQ(out[5 * 16 + i], 0.0F);
}

TEST(CausalConv, MatchesTheDefinitionAndKeepsItsHistory) {
  for (const int64_t taps : {1, 2, 4, 7}) {
    const RecurrentShape shape = make_shape(3, 9, 40, taps);  // 600 channels
    const int64_t channels = shape.conv_channels;
    const auto w = random_floats(static_cast<size_t>(taps * channels), 3);
    const auto x = random_floats(static_cast<size_t>(20 * channels), 4);
    std::vector<double> want;
    for (int64_t t = 0; t < 20; ++t) {
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j < taps; ++j) {
          const int64_t from = t - taps + 1 + j;
          if (from >= 0)
            sum += static_cast<double>(w[static_cast<size_t>(j * channels + c)]) *
                   static_cast<double>(x[static_cast<size_t>(from * channels + c)]);
        }
        want.push_back(silu(sum));
      }
    }
    std::vector<float> first_result;
    for (const auto& passes : std::vector<std::vector<int64_t>>{{20}, {1, 1, 2, 16}, {7, 13}}) {
      const auto backend = make_backend(passes.size() == 1 ? 1 : 3);
      const auto state = backend->make_recurrent_state(shape);
      std::vector<float> got;
      int64_t done = 0;
      for (const int64_t count : passes) {
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(done * channels);
        const Matrix rows(*backend, count, channels,
                          std::vector<float>(begin, begin + count * channels));
        backend->causal_conv(rows.mat, w.data(), *state);
        const auto values = rows.values();
        got.insert(got.end(), values.begin(), values.end());
        done += count;
      }
      expect_near(got, want, 1e-5);
      if (first_result.empty()) first_result = got;
      EXPECT_EQ(got, first_result) << taps;
    }
  }
}

TEST(GatedNorm, NormThenGate) {
  const auto backend = make_backend();
  const Matrix x(*backend, 3, 12, random_floats(36, 1)), z(*backend, 3, 12, random_floats(36, 2));
  const std::vector<float> w = random_floats(4, 3);
  std::vector<double> want;
  for (size_t i = 0; i < 36; ++i) {
    const size_t begin = i / 4 * 4;
    double squares = 0;
    for (size_t j = 0; j < 4; ++j) {
      const double value = static_cast<double>(x.values()[begin + j]);
      squares += value * value;
    }
    want.push_back(static_cast<double>(x.values()[i]) / std::sqrt(squares / 4 + 1e-6) *
                   static_cast<double>(w[i % 4]) * silu(static_cast<double>(z.values()[i])));
  }
  Activation act(x.mat);
  backend->gated_rms_norm(x.mat, w.data(), 4, 1e-6F, z.mat, act);
  expect_near(x.values(), want, 1e-6);
}

TEST(GatedAttention, SplitsHeadsAndGates) {
  const auto backend = make_backend();
  std::vector<float> p;
  for (int i = 0; i < 24; ++i)
    p.push_back(static_cast<float>(i));
  const Matrix all(*backend, 2, 12, p), q(*backend, 2, 6), gate(*backend, 2, 6);
  backend->split_query_gate(all.mat, 3, q.mat, gate.mat);
  EXPECT_THAT(q.values(), testing::ElementsAre(0, 1, 2, 6, 7, 8, 12, 13, 14, 18, 19, 20));
  EXPECT_THAT(gate.values(), testing::ElementsAre(3, 4, 5, 9, 10, 11, 15, 16, 17, 21, 22, 23));

  const Matrix g(*backend, 1, 11, {-200, -30, -5, -1, 0, 0.5F, 1, 5, 20, 90, 200});
  const Matrix up(*backend, 1, 11, random_floats(11, 5));
  const auto before = up.values();
  backend->gated_unit(GatedUnit::kSigmoid, g.mat, up.mat, up.mat);
  for (size_t i = 0; i < 11; ++i)
    EXPECT_NEAR(
        up.values()[i],
        static_cast<double>(before[i]) / (1.0 + std::exp(-static_cast<double>(g.values()[i]))),
        1e-6);
}

TEST(RecurrentStates, AreCopiedAndReset) {
  const auto backend = make_backend();
  const Inputs in(make_shape(1, 2, 40), 70, 19);
  const auto a = backend->make_recurrent_state(in.shape);
  const auto b = backend->make_recurrent_state(in.shape);
  const auto first = run_delta_rule(*backend, in, *a, {70});
  const auto bytes = backend->read_recurrent(*a);
  EXPECT_EQ(bytes.size(), a->bytes());
  backend->write_recurrent(*b, bytes);
  EXPECT_EQ(run_delta_rule(*backend, in, *a, {70}, 70), run_delta_rule(*backend, in, *b, {70}, 70));
  backend->reset_recurrent(*a);
  EXPECT_EQ(run_delta_rule(*backend, in, *a, {70}), first);
  EXPECT_THROW(backend->write_recurrent(*a, std::span(bytes).first(bytes.size() - 1)),
               InvalidArgument);
}

TEST(RecurrentStates, BadShapesAreRefused) {
  const auto backend = make_backend();
  EXPECT_THROW(backend->make_recurrent_state(make_shape(2, 3, 8)), InvalidArgument);
  EXPECT_THROW(backend->make_recurrent_state(make_shape(0, 2, 8)), InvalidArgument);
  RecurrentShape shape = make_shape(1, 2, 8);
  shape.conv_channels = 31;
  EXPECT_THROW(backend->make_recurrent_state(shape), InvalidArgument);
  EXPECT_THROW(backend->make_recurrent_state(make_shape(1, 1 << 20, 1 << 20)), ResourceExhausted);
}

TEST(DeltaRule, BadArgumentsAreRefused) {
  const auto backend = make_backend();
  const Inputs in(make_shape(1, 2, 8), 3, 1);
  const auto state = backend->make_recurrent_state(make_shape(1, 1, 8));
  EXPECT_THROW(run_delta_rule(*backend, in, *state, {3}), InvalidArgument);
  EXPECT_THROW(run_delta_rule(*backend, in, *backend->make_recurrent_state(in.shape), {3}, -5),
               InvalidArgument);
}

}  // namespace
}  // namespace ts
