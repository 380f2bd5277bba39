// Products with rotated inputs and outputs, rotated embeddings, and the fused norm.
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend_fixture.h"
#include "hadamard/transform.h"

namespace ts {
namespace {
using namespace testing_backend;

std::vector<int8_t> random_signs(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int8_t> signs(static_cast<size_t>(n));
  for (int8_t& s : signs)
    s = rng() % 2 == 0 ? 1 : -1;
  return signs;
}

std::shared_ptr<Backend> backend_with(int n_threads, bool exact, const char* isa = "") {
  CpuBackendOptions options;
  options.n_threads = n_threads;
  options.exact = exact;
  options.isa = isa;
  return make_cpu_backend(options);
}

/// W R x in double precision, R x as the reference rotation computes it.
std::vector<double> product(const PackedMatrix& w, const Rotation& r, const std::vector<float>& x,
                            int64_t m, int64_t n) {
  const auto k = static_cast<size_t>(r.width());
  std::vector<double> y;
  std::vector<float> rotated(k);
  for (size_t i = 0; i < static_cast<size_t>(m); ++i) {
    r.forward(x.data() + i * k, rotated.data());
    for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
      double sum = 0;
      for (size_t c = 0; c < k; ++c)
        sum += w.decoded[row * k + c] * static_cast<double>(rotated[c]);
      y.push_back(sum);
    }
  }
  return y;
}

TEST(RotatedLinear, EveryActivationFormReadsTheRotatedRows) {
  for (const bool exact : {false, true}) {
    const auto backend = backend_with(2, exact);
    // One codec for each form: f32, int8 per 32, 64 and 128; widths of several parts and a short
    // one.
    for (const char* type : {"f16", "q8_0", "q6_k", "q2_0", "pq2_0"}) {
      for (const auto& [k, block] :
           {std::pair<int64_t, int64_t>{3072, 1024}, {2304, 256}, {768, 2}}) {
        const Codec& codec = *find_codec(type);
        const Rotation plain(k, block, random_signs(k, 3));
        const Rotation grouped(k, block, random_signs(k, 4), GroupedHeads{2, 3, k / 6});
        const int64_t n = 9;
        const PackedMatrix w = random_weight(*backend, codec, n, k, 7);
        for (const int64_t m : {1, 5}) {
          const std::vector<float> x = random_floats(static_cast<size_t>(m * k), 8);
          Matrix xm(*backend, m, k, x), a(*backend, m, n), b(*backend, m, n), c(*backend, m, n);
          Activation act(xm.mat);
          // Three readers of the same rows, each with its own form.
          const LinearJob jobs[] = {{w.weight.get(), a.mat, nullptr, &plain},
                                    {w.weight.get(), b.mat, nullptr, &grouped},
                                    {w.weight.get(), c.mat, nullptr}};
          backend->linear(jobs, act);
          const double limit = exact || codec.activation == ActivationForm::kF32 ? 1e-6 : 0.02;
          EXPECT_LT(relative_error(a.values(), product(w, plain, x, m, n)), limit)
              << type << " " << k;
          EXPECT_LT(relative_error(b.values(), product(w, grouped, x, m, n)), limit)
              << type << " " << k;
          EXPECT_LT(relative_error(c.values(), product(w, Rotation(k, 1), x, m, n)), limit)
              << type << " " << k;
          EXPECT_EQ(xm.values(), x) << "the rows themselves stay";
        }
      }
    }
  }
}

TEST(RotatedLinear, OutputsAreRotatedBackBeforeTheBias) {
  const int64_t k = 256, n = 2304, m = 3;
  const auto backend = backend_with(2, true);
  const PackedMatrix w = random_weight(*backend, *find_codec("f32"), n, k, 1);
  const std::vector<float> x = random_floats(static_cast<size_t>(m * k), 2),
                           bias = random_floats(n, 3);
  const Rotation output(n, 256, random_signs(n, 5));
  Matrix xm(*backend, m, k, x), plain(*backend, m, n), y(*backend, m, n, 3);
  Activation act(xm.mat);
  const LinearJob jobs[] = {{w.weight.get(), plain.mat, nullptr},
                            {w.weight.get(), y.mat, bias.data(), nullptr, &output}};
  backend->linear(jobs, act);
  for (int64_t r = 0; r < m; ++r) {
    std::vector<float> want(static_cast<size_t>(n));
    output.inverse(plain.mat.row(r), want.data());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(y.mat.row(r)[i], want[i] + bias[i]) << r << " " << i;
  }
}

/// norm, then products, with a rotated int8, a rotated f32 and a plain reader of the rows.
struct Reader {
  std::shared_ptr<Backend> backend;
  PackedMatrix ternary, half, other;
  Rotation rotation;

  Reader(std::shared_ptr<Backend> b, int64_t k)
      : backend(std::move(b)),
        ternary(random_weight(*backend, *find_codec("pq2_0"), 20, k, 1)),
        half(random_weight(*backend, *find_codec("f16"), 20, k, 2)),
        other(random_weight(*backend, *find_codec("q8_0"), 20, k, 3)),
        rotation(k, 512, random_signs(k, 4), GroupedHeads{1, 4, k / 4}) {}

  std::vector<float> products(Activation& act) {
    const int64_t m = act.rows().rows;
    Matrix a(*backend, m, 20), b(*backend, m, 20), c(*backend, m, 20);
    const LinearJob jobs[] = {{ternary.weight.get(), a.mat, nullptr, &rotation},
                              {half.weight.get(), b.mat, nullptr, &rotation},
                              {other.weight.get(), c.mat, nullptr}};
    backend->linear(jobs, act);
    std::vector<float> all = a.values();
    for (const Matrix* more : {&b, &c}) {
      const std::vector<float> values = more->values();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST(RotatedLinear, FusedNormGivesTheBitsOfSeparateSteps) {
  const int64_t k = 2560;
  const std::vector<float> weight = random_floats(static_cast<size_t>(k), 9);
  std::optional<std::vector<float>> first;
  for (const char* isa : {"ref", ""}) {
    for (const int n_threads : {1, 3}) {
      Reader reader(backend_with(n_threads, false, isa), k);
      Backend& backend = *reader.backend;
      Activation fused;
      std::vector<float> all;
      for (const int64_t m : {1, 7, 2, 1}) {
        const std::vector<float> x =
            random_floats(static_cast<size_t>(m * k), static_cast<uint32_t>(m));
        Matrix xm(backend, m, k, x), separate(backend, m, k), rows(backend, m, k, 8);
        backend.rms_norm(xm.mat, weight.data(), k, 1e-5F, separate.mat);
        Activation plain(separate.mat);
        const std::vector<float> want = reader.products(plain);
        // From the second round on the forms are expected and made by the norm itself.
        fused.reset(rows.mat);
        backend.rms_norm(xm.mat, weight.data(), 1e-5F, fused);
        for (const Activation::Slot& slot : fused.slots())
          EXPECT_TRUE(slot.valid && slot.expected) << "the form is made at once";
        EXPECT_EQ(rows.values(), separate.values());
        EXPECT_EQ(reader.products(fused), want) << isa << " rows " << m;
        EXPECT_EQ(fused.slots().size(), 3u);
        all.insert(all.end(), want.begin(), want.end());
      }
      // Nor do instruction set and threads matter.
      if (first) {
        EXPECT_EQ(all, *first) << isa << " threads " << n_threads;
      }
      first = all;
    }
  }
}

TEST(RotatedLinear, FusedGatedNormGivesTheBitsOfSeparateSteps) {
  const int64_t k = 2560, group = 128;
  const std::vector<float> weight = random_floats(static_cast<size_t>(group), 9);
  for (const int n_threads : {1, 3}) {
    Reader reader(backend_with(n_threads, false), k);
    Backend& backend = *reader.backend;
    Activation fused;
    for (const int64_t m : {1, 7, 1}) {
      const auto floats = [&](uint32_t seed) {
        return random_floats(static_cast<size_t>(m * k), seed);
      };
      Matrix x1(backend, m, k, floats(1)), x2(backend, m, k, floats(1)),
          gate(backend, m, k, floats(2));
      Activation plain(x1.mat);  // no forms expected
      backend.gated_rms_norm(x1.mat, weight.data(), group, 1e-5F, gate.mat, plain);
      EXPECT_TRUE(plain.slots().empty());
      const std::vector<float> want = reader.products(plain);
      fused.reset(x2.mat);
      backend.gated_rms_norm(x2.mat, weight.data(), group, 1e-5F, gate.mat, fused);
      for (const Activation::Slot& slot : fused.slots())
        EXPECT_TRUE(slot.valid && slot.expected) << "the form is made at once";
      EXPECT_EQ(x1.values(), x2.values());
      EXPECT_EQ(reader.products(fused), want) << "rows " << m << " threads " << n_threads;
      EXPECT_EQ(fused.slots().size(), 3u);
    }
  }
}

TEST(RotatedLinear, FormsNobodyReadsAnyMoreAreNotMade) {
  const int64_t k = 512;
  Reader reader(backend_with(1, false), k);
  Backend& backend = *reader.backend;
  const std::vector<float> weight(static_cast<size_t>(k), 1.0F);
  Matrix x(backend, 1, k, random_floats(static_cast<size_t>(k), 1)), y(backend, 1, k),
      out(backend, 1, 20);
  Activation act(y.mat);
  backend.rms_norm(x.mat, weight.data(), 1e-5F, act);
  reader.products(act);
  act.reset(y.mat);
  backend.rms_norm(x.mat, weight.data(), 1e-5F, act);
  const LinearJob job = {reader.ternary.weight.get(), out.mat, nullptr, &reader.rotation};
  backend.linear({&job, 1}, act);
  act.reset(y.mat);
  backend.rms_norm(x.mat, weight.data(), 1e-5F, act);
  int made = 0;
  for (const Activation::Slot& slot : act.slots())
    made += slot.valid ? 1 : 0;
  EXPECT_EQ(made, 1);
  EXPECT_THROW(backend.rms_norm(x.mat, weight.data(), 1e-5F, act), InvalidArgument)
      << "forms of other rows are still there";
}

TEST(RotatedLinear, WidthsMustAgree) {
  const auto backend = backend_with(1, false);
  const PackedMatrix w = random_weight(*backend, *find_codec("q8_0"), 64, 128, 1);
  Matrix x(*backend, 1, 128), y(*backend, 1, 64), e(*backend, 1, 128);
  Activation act(x.mat);
  const Rotation right(128, 64), wrong(64, 64), grouped(64, 64, {}, GroupedHeads{2, 2, 16});
  const auto run = [&](const Rotation* input, const Rotation* output) {
    const LinearJob job = {w.weight.get(), y.mat, nullptr, input, output};
    backend->linear({&job, 1}, act);
  };
  EXPECT_NO_THROW(run(&right, &wrong));
  EXPECT_THROW(run(&wrong, nullptr), InvalidArgument);
  EXPECT_THROW(run(nullptr, &right), InvalidArgument);
  EXPECT_THROW(run(nullptr, &grouped), InvalidArgument);
  const std::vector<int32_t> ids = {3};
  EXPECT_THROW(backend->embed(*w.weight, ids, 1.0F, e.mat, &wrong), InvalidArgument);
}

TEST(RotatedEmbed, RowsAreRotatedBackThenScaled) {
  for (const char* isa : {"ref", ""}) {
    const auto backend = backend_with(2, false, isa);
    const int64_t k = 384;
    const PackedMatrix w = random_weight(*backend, *find_codec("q8_0"), 11, k, 1);
    const Rotation rotation(k, 128, random_signs(k, 2));
    const std::vector<int32_t> ids = {10, 0, 10};
    Matrix y(*backend, 3, k);
    backend->embed(*w.weight, ids, 3.0F, y.mat, &rotation);
    for (size_t r = 0; r < ids.size(); ++r) {
      const auto at = w.decoded.begin() + static_cast<long>(ids[r]) * k;
      std::vector<float> want(at, at + k);
      rotation.inverse(want.data(), want.data());
      for (size_t c = 0; c < want.size(); ++c)
        ASSERT_EQ(y.mat.row(static_cast<int64_t>(r))[c], want[c] * 3.0F)
            << isa << " " << r << " " << c;
    }
  }
}

TEST(RotatedLinear, SelfCheckCoversTheTransforms) {
  const auto backend = backend_with(1, false);
  const Rotation a(5120, 1024, random_signs(5120, 1)), again(5120, 1024), other(576, 64);
  const std::vector<const Rotation*> rotations = {&a, &again, &other};
  EXPECT_EQ(check_kernels(*backend, {}, rotations).n_transforms, 2);
  try {
    check_kernels(*backend, {}, rotations, [](std::span<float> y) { y[y.size() / 2] *= 1.0001F; });
    FAIL() << "a changed result went unnoticed";
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("5120"), testing::HasSubstr("1024")));
  }
}

}  // namespace
}  // namespace ts
