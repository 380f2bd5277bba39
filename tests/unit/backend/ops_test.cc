// Row operations and attention against double-precision references.
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend_fixture.h"

namespace ts {
namespace {
using namespace testing_backend;

std::shared_ptr<Backend> backend_with(int n_threads) {
  CpuBackendOptions options;
  options.n_threads = n_threads;
  return make_cpu_backend(options);
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), want[i], tolerance * (1 + std::abs(want[i])))
        << "element " << i;
}

TEST(RmsNorm, WholeRowsAndHeads) {
  const auto backend = backend_with(2);
  for (const int64_t group : {64, 576, 36, 7}) {
    const int64_t cols = group == 576 ? 576 : group * 3, rows = 5;
    const std::vector<float> x = random_floats(static_cast<size_t>(rows * cols), 1);
    const std::vector<float> w = random_floats(static_cast<size_t>(group), 2);
    Matrix in(*backend, rows, cols, x), out(*backend, rows, cols);
    backend->rms_norm(in.mat, w.data(), group, 1e-5F, out.mat);
    std::vector<double> want;
    for (size_t b = 0; b < x.size(); b += static_cast<size_t>(group)) {
      double sum = 0;
      for (size_t i = 0; i < w.size(); ++i)
        sum += static_cast<double>(x[b + i]) * static_cast<double>(x[b + i]);
      for (size_t i = 0; i < w.size(); ++i)
        want.push_back(static_cast<double>(x[b + i]) /
                       std::sqrt(sum / static_cast<double>(group) + 1e-5) *
                       static_cast<double>(w[i]));
    }
    expect_near(out.values(), want, 5e-7);
    backend->rms_norm(in.mat, w.data(), group, 1e-5F, in.mat);  // in place
    EXPECT_EQ(in.values(), out.values());
  }
}

TEST(Rope, KnownVectorsBothPairings) {
  const auto backend = backend_with(1);
  Rope rope;
  rope.inverse_frequency = {1.0, 0.01};
  for (const bool half_split : {true, false}) {
    rope.half_split = half_split;
    Matrix x(*backend, 2, 4, {9, 9, 9, 9, 1, 2, 3, 4});
    backend->rope(x.mat, 1, 4, 0, rope);
    const std::vector<float> got = x.values();
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(got[i], 9.0F) << "position 0 is not rotated";
    const std::vector<double> want =
        half_split ? std::vector<double>{-1.98411065, 1.95990067, 2.46237790, 4.01979967}
                   : std::vector<double>{-1.14263966, 1.92207560, 2.95985067, 4.02979950};
    expect_near({got.begin() + 4, got.end()}, want, 1e-7);
  }
}

TEST(Rope, PartialRotationScaleAndLatePositions) {
  const auto backend = backend_with(2);
  Rope rope;
  rope.scale = 1.25F;
  rope.half_split = true;
  for (int j = 0; j < 8; ++j)
    rope.inverse_frequency.push_back(std::pow(10000.0, -j / 8.0));
  const std::vector<float> x = random_floats(300 * 2 * 24, 3);
  // In two calls and in one: equal bits.
  Matrix one(*backend, 300, 48, x), two(*backend, 300, 48, x);
  backend->rope(one.mat, 2, 24, 100000, rope);
  backend->rope(two.mat.slice_rows(0, 1), 2, 24, 100000, rope);
  backend->rope(two.mat.slice_rows(1, 299), 2, 24, 100001, rope);
  EXPECT_EQ(one.values(), two.values());
  std::vector<double> want(x.begin(), x.end());
  for (size_t r = 0; r < 300; ++r) {
    for (size_t h = 0; h < 2; ++h) {
      for (size_t j = 0; j < 8; ++j) {
        double& a = want[r * 48 + h * 24 + j];
        double& b = want[r * 48 + h * 24 + j + 8];
        const double angle = static_cast<double>(100000 + r) * rope.inverse_frequency[j];
        const double c = std::cos(angle) * 1.25, s = std::sin(angle) * 1.25;
        const double rotated = a * c - b * s;
        b = a * s + b * c;
        a = rotated;
      }
    }
  }
  expect_near(one.values(), want, 1e-6);
}

TEST(GatedUnit, SiluAndGelu) {
  const auto backend = backend_with(2);
  std::vector<float> gate = random_floats(4 * 301, 1, 4.0F);
  gate[0] = 0.0F;
  gate[1] = 90.0F;
  gate[2] = -90.0F;
  gate[3] = -200.0F;
  gate[4] = 1e-20F;
  const std::vector<float> up = random_floats(gate.size(), 2);
  for (const GatedUnit unit : {GatedUnit::kSilu, GatedUnit::kGeluTanh}) {
    Matrix g(*backend, 4, 301, gate), u(*backend, 4, 301, up), out(*backend, 4, 301);
    backend->gated_unit(unit, g.mat, u.mat, out.mat);
    std::vector<double> want;
    for (size_t i = 0; i < gate.size(); ++i) {
      const double x = static_cast<double>(gate[i]);
      const double y =
          unit == GatedUnit::kSilu
              ? x / (1 + std::exp(-x))
              : 0.5 * x * (1 + std::tanh(0.79788456080286536 * x * (1 + 0.044715 * x * x)));
      want.push_back(y * static_cast<double>(up[i]));
    }
    expect_near(out.values(), want, 1e-6);
    backend->gated_unit(unit, g.mat, u.mat, g.mat);
    EXPECT_EQ(g.values(), out.values());
  }
}

TEST(Softcap, FollowsTanhAndKeepsNan) {
  const auto backend = backend_with(2);
  std::vector<float> x = random_floats(20000, 1, 30.0F);
  x[0] = 0.0F;
  x[1] = 1e30F;
  x[2] = -1e30F;
  x[3] = 1e-6F;
  Matrix m(*backend, 2, 10000, x);
  backend->softcap(m.mat, 30.0F);
  std::vector<double> want;
  for (const float v : x)
    want.push_back(30 * std::tanh(static_cast<double>(v) / 30));
  expect_near(m.values(), want, 3e-7);
  Matrix bad(*backend, 1, 2, {std::nanf(""), 1.0F});
  backend->softcap(bad.mat, 30.0F);
  EXPECT_TRUE(std::isnan(bad.values()[0]));
  EXPECT_THROW(backend->softcap(bad.mat, 0.0F), InvalidArgument);
}

TEST(Add, Strided) {
  const auto backend = backend_with(2);
  Matrix x(*backend, 3, 10, random_floats(30, 1)), y(*backend, 3, 10, random_floats(30, 2));
  const std::vector<float> before = x.values();
  backend->add(x.mat.slice_cols(2, 4), y.mat.slice_cols(2, 4));
  for (size_t i = 0; i < 30; ++i) {
    const bool inside = i % 10 >= 2 && i % 10 < 6;
    EXPECT_EQ(x.values()[i], inside ? before[i] + y.values()[i] : before[i]);
  }
}

struct AttentionCase {
  int64_t n_heads, n_kv, head_dim, window;
};

/// Causal attention in double over the f32 inputs.
std::vector<double> attention_reference(const AttentionCase& c, const std::vector<float>& q,
                                        const std::vector<float>& k, const std::vector<float>& v,
                                        int64_t n, double scale) {
  std::vector<double> out(q.size());
  const int64_t qw = c.n_heads * c.head_dim, kw = c.n_kv * c.head_dim;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t h = 0; h < c.n_heads; ++h) {
      const int64_t kh = h / (c.n_heads / c.n_kv);
      const int64_t low = c.window > 0 ? std::max<int64_t>(0, r - c.window + 1) : 0;
      std::vector<double> score;
      double top = -1e300, sum = 0;
      for (int64_t p = low; p <= r; ++p) {
        double s = 0;
        for (int64_t d = 0; d < c.head_dim; ++d)
          s += static_cast<double>(q[static_cast<size_t>(r * qw + h * c.head_dim + d)]) *
               static_cast<double>(k[static_cast<size_t>(p * kw + kh * c.head_dim + d)]);
        score.push_back(s * scale);
        top = std::max(top, s * scale);
      }
      for (double& s : score) {
        s = std::exp(s - top);
        sum += s;
      }
      for (int64_t d = 0; d < c.head_dim; ++d) {
        double o = 0;
        for (int64_t p = low; p <= r; ++p)
          o += score[static_cast<size_t>(p - low)] *
               static_cast<double>(v[static_cast<size_t>(p * kw + kh * c.head_dim + d)]);
        out[static_cast<size_t>(r * qw + h * c.head_dim + d)] = o / sum;
      }
    }
  }
  return out;
}

class Attention : public testing::TestWithParam<AttentionCase> {};

TEST_P(Attention, MatchesDoubleAndDoesNotDependOnChunksOrThreads) {
  const AttentionCase c = GetParam();
  const int64_t n = 203;
  const int64_t qw = c.n_heads * c.head_dim, kw = c.n_kv * c.head_dim;
  const std::vector<float> q = random_floats(static_cast<size_t>(n * qw), 1);
  const std::vector<float> k = random_floats(static_cast<size_t>(n * kw), 2);
  const std::vector<float> v = random_floats(static_cast<size_t>(n * kw), 3);
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const std::vector<double> want = attention_reference(c, q, k, v, n, scale);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 5}) {
      const auto backend = backend_with(threads);
      Matrix qm(*backend, n, qw, q), km(*backend, n, kw, k), vm(*backend, n, kw, v);
      for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{64}, n}) {
        const auto cache = backend->make_kv_cache({n, c.n_kv, c.head_dim}, type);
        Matrix out(*backend, n, qw);
        for (int64_t r = 0; r < n; r += chunk) {
          const int64_t count = std::min(chunk, n - r);
          AttentionArgs args;
          args.q = qm.mat.slice_rows(r, count);
          args.k = km.mat.slice_rows(r, count);
          args.v = vm.mat.slice_rows(r, count);
          args.out = out.mat.slice_rows(r, count);
          args.first_position = r;
          args.n_heads = c.n_heads;
          args.scale = static_cast<float>(scale);
          args.window = c.window;
          backend->attention(args, *cache);
        }
        const std::vector<float> got = out.values();
        if (first.empty()) {
          first = got;
          expect_near(got, want, type == KvType::kF32 ? 1e-5 : type == KvType::kF16 ? 3e-3 : 4e-2);
        }
        ASSERT_EQ(0, std::memcmp(first.data(), got.data(), got.size() * sizeof(float)))
            << threads << " threads, chunk " << chunk << ", type " << static_cast<int>(type);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Values(AttentionCase{9, 3, 64, 0}, AttentionCase{4, 1, 256, 0},
                                         AttentionCase{4, 1, 80, 50}, AttentionCase{2, 2, 20, 1},
                                         AttentionCase{6, 3, 36, 130}));

TEST(KvCache, ContentsMoveBetweenCaches) {
  const auto backend = backend_with(1);
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const KvShape shape = {10, 2, 36};
    const auto a = backend->make_kv_cache(shape, type);
    const auto b = backend->make_kv_cache(shape, type);
    Matrix q(*backend, 6, 144, random_floats(6 * 144, 1)),
        k(*backend, 6, 72, random_floats(432, 2)), v(*backend, 6, 72, random_floats(432, 3)),
        out(*backend, 6, 144), again(*backend, 1, 144);
    AttentionArgs args{q.mat, k.mat, v.mat, out.mat, 0, 4, 0.2F, 0};
    backend->attention(args, *a);
    const std::vector<std::byte> bytes = backend->read_kv(*a, 0, 5);
    EXPECT_EQ(bytes.size() * 2, a->bytes());
    backend->write_kv(*b, 0, bytes);
    AttentionArgs last{q.mat.slice_rows(5, 1),
                       k.mat.slice_rows(5, 1),
                       v.mat.slice_rows(5, 1),
                       again.mat,
                       5,
                       4,
                       0.2F,
                       0};
    backend->attention(last, *b);
    const std::vector<float> all = out.values(), one = again.values();
    EXPECT_EQ(0, std::memcmp(all.data() + 5 * 144, one.data(), one.size() * sizeof(float)));
    EXPECT_THROW(backend->write_kv(*b, 6, bytes), InvalidArgument);
    EXPECT_THROW(backend->read_kv(*b, 3, 11), InvalidArgument);
    last.first_position = 10;
    EXPECT_THROW(backend->attention(last, *b), ResourceExhausted);
  }
}

TEST(Memory, ImpossibleSizesAreErrors) {
  const auto backend = backend_with(1);
  EXPECT_THROW(backend->allocate(SIZE_MAX / 4, "activations"), ResourceExhausted);
  EXPECT_THROW(backend->allocate(size_t{1} << 50, "activations"), ResourceExhausted);
  EXPECT_THROW(backend->make_kv_cache({INT64_MAX, 8, 128}, KvType::kF32), ResourceExhausted);
  EXPECT_THROW(backend->make_kv_cache({int64_t{1} << 45, 8, 128}, KvType::kF16), ResourceExhausted);
  EXPECT_THROW(backend->make_kv_cache({0, 8, 128}, KvType::kF32), InvalidArgument);
}

}  // namespace
}  // namespace ts
