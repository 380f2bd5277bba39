// Products against double-precision sums over the decoded weights.
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/tile_arena.h"
#include "backend_fixture.h"

namespace ts {
namespace {
using namespace testing_backend;

/// A width every block format accepts, not a multiple of 1024, or the 32-block-only 1.5 x 64 one.
int64_t width_for(const Codec& codec) {
  return codec.block_elems >= 256 ? 768 : codec.block_elems == 128 ? 640 : 576;
}

std::vector<double> reference(const PackedMatrix& w, const std::vector<float>& x, int64_t m,
                              int64_t n, int64_t k) {
  std::vector<double> y(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t r = 0; r < n; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < k; ++c)
        sum += w.decoded[static_cast<size_t>(r * k + c)] *
               static_cast<double>(x[static_cast<size_t>(i * k + c)]);
      y[static_cast<size_t>(i * n + r)] = sum;
    }
  }
  return y;
}

TEST(Linear, EveryCodecMatchesDoubleSums) {
  for (const bool exact : {false, true}) {
    CpuBackendOptions options;
    options.n_threads = 2;
    options.exact = exact;
    const auto backend = make_cpu_backend(options);
    for (const Codec* codec : product_codecs()) {
      const int64_t k = width_for(*codec), n = 37;
      for (const int64_t m : {1, 3, 20}) {
        const PackedMatrix w = random_weight(*backend, *codec, n, k, 7);
        const std::vector<float> x = random_floats(static_cast<size_t>(m * k), 8);
        Matrix xm(*backend, m, k, x), y(*backend, m, n, 5);
        Activation act(xm.mat);
        const LinearJob job = {w.weight.get(), y.mat, nullptr};
        backend->linear({&job, 1}, act);
        const double error = relative_error(y.values(), reference(w, x, m, n, k));
        const bool float_path = exact || codec->activation == ActivationForm::kF32;
        EXPECT_LT(error, float_path ? 1e-6 : 0.02) << codec->name << " exact " << exact;
        if (!float_path) {
          EXPECT_GT(error, 1e-4) << codec->name << ": int8 activations expected";
        }
      }
    }
  }
}

TEST(Linear, SeveralJobsShareRowsAndAddBias) {
  CpuBackendOptions options;
  options.n_threads = 2;
  const auto backend = make_cpu_backend(options);
  const int64_t k = 256, m = 5;
  const PackedMatrix a = random_weight(*backend, *find_codec("q4_1"), 40, k, 1);
  const PackedMatrix b = random_weight(*backend, *find_codec("pq2_0"), 3, k, 2);
  const PackedMatrix c = random_weight(*backend, *find_codec("f32"), 17, k, 3);
  const std::vector<float> x = random_floats(static_cast<size_t>(m * k), 4);
  const std::vector<float> bias = random_floats(40, 5);
  Matrix xm(*backend, m, k, x), ya(*backend, m, 40), yb(*backend, m, 3), yc(*backend, m, 17);
  Activation act(xm.mat);
  const LinearJob jobs[] = {{a.weight.get(), ya.mat, bias.data()},
                            {b.weight.get(), yb.mat, nullptr},
                            {c.weight.get(), yc.mat, nullptr}};
  backend->linear(jobs, act);
  std::vector<double> want = reference(a, x, m, 40, k);
  for (size_t i = 0; i < want.size(); ++i)
    want[i] += static_cast<double>(bias[i % 40]);
  EXPECT_LT(relative_error(ya.values(), want), 0.02);
  EXPECT_LT(relative_error(yb.values(), reference(b, x, m, 3, k)), 0.02);
  EXPECT_LT(relative_error(yc.values(), reference(c, x, m, 17, k)), 1e-6);
}

TEST(Linear, SameBitsForAnyBatchAndThreadCount) {
  CpuBackendOptions options;
  options.n_threads = 1;
  const auto one = make_cpu_backend(options);
  options.n_threads = 3;
  const auto three = make_cpu_backend(options);
  for (const Codec* codec : product_codecs()) {
    const int64_t k = width_for(*codec), n = 133, m = 70;
    const PackedMatrix w1 = random_weight(*one, *codec, n, k, 11);
    const PackedMatrix w3 = random_weight(*three, *codec, n, k, 11);
    const std::vector<float> x = random_floats(static_cast<size_t>(m * k), 12);
    Matrix x1(*one, m, k, x), y1(*one, m, n), x3(*three, m, k, x), y3(*three, m, n);
    Activation act1(x1.mat), act3;
    const LinearJob job1 = {w1.weight.get(), y1.mat, nullptr};
    one->linear({&job1, 1}, act1);
    for (int64_t r = 0, step = 1; r < m; r += step, step = step % 7 + 1) {
      const int64_t count = std::min(step, m - r);
      act3.reset(x3.mat.slice_rows(r, count));
      const LinearJob job3 = {w3.weight.get(), y3.mat.slice_rows(r, count), nullptr};
      three->linear({&job3, 1}, act3);
    }
    const std::vector<float> a = y1.values(), b = y3.values();
    EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float))) << codec->name;
  }
}

TEST(TileArena, PiecesHoldManyAndOutliveTheArena) {
  auto arena = std::make_unique<TileArena>(true);
  constexpr size_t kSmall = 100, kLarge = size_t{40} << 20;  // more than the first piece
  const auto address = [](const std::shared_ptr<std::byte>& p) {
    return reinterpret_cast<uintptr_t>(p.get());
  };
  std::vector<std::shared_ptr<std::byte>> all;
  for (const size_t bytes : {kSmall, kSmall, kLarge, kSmall}) {
    all.push_back(arena->allocate(bytes));
    EXPECT_EQ(address(all.back()) % 64, 0U);
    EXPECT_EQ(all.back().get()[bytes - 1], std::byte{0});
    std::memset(all.back().get(), static_cast<int>(all.size()), bytes);
  }
  EXPECT_EQ(address(all[1]) - address(all[0]), 128U) << "not in one piece";
  EXPECT_THROW(arena->allocate(SIZE_MAX), std::bad_alloc);
  arena.reset();
  all[0].reset();  // gives back whole pages, of which it has none
  EXPECT_EQ(all[1].get()[kSmall - 1], std::byte{2});
  EXPECT_EQ(all[2].get()[kLarge - 1], std::byte{3});
  EXPECT_EQ(all[3].get()[0], std::byte{4});
}

TEST(Linear, RepackedAndMappedWeightsGiveTheSameBits) {
  CpuBackendOptions options;
  options.n_threads = 2;
  const auto repacking = make_cpu_backend(options);
  options.repack = false;
  const auto mapping = make_cpu_backend(options);
  for (const char* name : {"pq2_0", "ptq1_0", "q2_0", "tq1_0", "tq2_0"}) {
    const Codec& codec = *find_codec(name);
    const int64_t k = width_for(codec) * 3, n = 53;
    const PackedMatrix a = random_weight(*repacking, codec, n, k, 21);
    const PackedMatrix b = random_weight(*mapping, codec, n, k, 21);
    EXPECT_FALSE(b.weight->mapped_bytes().empty()) << name;
    EXPECT_EQ(a.weight->mapped_bytes().empty(), repacks({}, codec.id)) << name;
    if (a.weight->mapped_bytes().empty()) {
      EXPECT_EQ(a.bytes.use_count(), 1) << name << ": the file's bytes are still held";
    }
    const TensorView view{"table", codec.id, {k, n}, *b.bytes};
    EXPECT_FALSE(repacking->upload(view, b.bytes, WeightUse::kTable)->mapped_bytes().empty())
        << name << ": a table that nothing multiplies";
    for (const int64_t m : {1, 5}) {
      const std::vector<float> x = random_floats(static_cast<size_t>(m * k), 22);
      Matrix x1(*repacking, m, k, x), y1(*repacking, m, n), x2(*mapping, m, k, x),
          y2(*mapping, m, n);
      Activation act1(x1.mat), act2(x2.mat);
      const LinearJob job1 = {a.weight.get(), y1.mat}, job2 = {b.weight.get(), y2.mat};
      repacking->linear({&job1, 1}, act1);
      mapping->linear({&job2, 1}, act2);
      EXPECT_EQ(y1.values(), y2.values()) << name;
    }
    const std::vector<int32_t> ids = {52, 0, 17, 16, 31};
    Matrix rows1(*repacking, 5, k), rows2(*mapping, 5, k);
    repacking->embed(*a.weight, ids, 1.5F, rows1.mat);
    mapping->embed(*b.weight, ids, 1.5F, rows2.mat);
    EXPECT_EQ(rows1.values(), rows2.values()) << name;
  }
}

TEST(Linear, TwoTernaryFormsOfOneMatrixGiveTheSameBits) {
  const auto backend = make_cpu_backend({});
  const int64_t k = 1152, n = 21, m = 3;
  const Codec& two_bit = *find_codec("pq2_0");
  const Codec& base3 = *find_codec("ptq1_0");
  std::mt19937 rng(3);
  std::vector<int8_t> codes(static_cast<size_t>(n * k));
  for (auto& c : codes)
    c = static_cast<int8_t>(rng() % 3) - 1;
  std::vector<uint16_t> scales(codes.size() / 128);
  for (auto& s : scales)
    s = static_cast<uint16_t>(0x2000 + rng() % 0x800);
  const auto weight = [&](const Codec& codec) {
    auto bytes = std::make_shared<std::vector<std::byte>>(codec.row_bytes(codes.size()));
    codec.pack(codes.data(), scales.data(), bytes->data(), codes.size());
    TensorView view{"w", codec.id, {k, n}, *bytes};
    return backend->upload(view, bytes);
  };
  const auto a = weight(two_bit), b = weight(base3);
  for (const int64_t rows : {int64_t{1}, m}) {
    Matrix x(*backend, rows, k, random_floats(static_cast<size_t>(rows * k), 9));
    Matrix ya(*backend, rows, n), yb(*backend, rows, n);
    Activation act(x.mat);
    const LinearJob jobs[] = {{a.get(), ya.mat, nullptr}, {b.get(), yb.mat, nullptr}};
    backend->linear(jobs, act);
    EXPECT_EQ(ya.values(), yb.values());
  }
}

TEST(Linear, NonFiniteActivationsStayVisible) {
  const auto backend = make_cpu_backend({});
  for (const char* name : {"q4_1", "q6_k", "pq2_0", "f16"}) {
    const PackedMatrix w = random_weight(*backend, *find_codec(name), 9, 256, 1);
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      std::vector<float> x = random_floats(256, 2);
      x[77] = bad;
      Matrix xm(*backend, 1, 256, x), y(*backend, 1, 9);
      Activation act(xm.mat);
      const LinearJob job = {w.weight.get(), y.mat, nullptr};
      backend->linear({&job, 1}, act);
      for (const float v : y.values())
        EXPECT_FALSE(std::isfinite(v)) << name;
    }
  }
}

TEST(Linear, RefusesWrongShapes) {
  const auto backend = make_cpu_backend({});
  const PackedMatrix w = random_weight(*backend, *find_codec("q8_0"), 4, 64, 1);
  Matrix x(*backend, 2, 96), y(*backend, 2, 4), narrow(*backend, 2, 64), small(*backend, 1, 4);
  Activation act(x.mat), fitting(narrow.mat);
  const LinearJob job = {w.weight.get(), y.mat, nullptr};
  EXPECT_THROW(backend->linear({&job, 1}, act), InvalidArgument);
  const LinearJob short_y = {w.weight.get(), small.mat, nullptr};
  EXPECT_THROW(backend->linear({&short_y, 1}, fitting), InvalidArgument);
}

TEST(Upload, ChecksBytesAndShape) {
  const auto backend = make_cpu_backend({});
  std::vector<std::byte> bytes(34 * 4);
  TensorView view{"w", TypeId::kQ8_0, {64, 2}, bytes};
  EXPECT_NO_THROW(backend->upload(view, nullptr));
  view.data = std::span(bytes).first(bytes.size() - 1);
  EXPECT_THROW(backend->upload(view, nullptr), FormatError);
  view.data = bytes;
  view.shape = {48, 2};
  EXPECT_THROW(backend->upload(view, nullptr), FormatError);
  view.shape = {64, 1, 2};
  EXPECT_THROW(backend->upload(view, nullptr), FormatError);
  view.shape = {64, INT64_MAX / 2};
  EXPECT_THROW(backend->upload(view, nullptr), FormatError);
  view.type = static_cast<TypeId>(36);
  EXPECT_THROW(backend->upload(view, nullptr), Unsupported);
}

TEST(Embed, DecodesRowsAndRefusesForeignIds) {
  const auto backend = make_cpu_backend({});
  const PackedMatrix w = random_weight(*backend, *find_codec("q8_0"), 11, 64, 1);
  Matrix y(*backend, 3, 64);
  const std::vector<int32_t> ids = {10, 0, 10};
  backend->embed(*w.weight, ids, 3.0F, y.mat);
  for (size_t r = 0; r < ids.size(); ++r) {
    for (size_t c = 0; c < 64; ++c)
      EXPECT_EQ(y.values()[r * 64 + c],
                static_cast<float>(w.decoded[static_cast<size_t>(ids[r]) * 64 + c]) * 3.0F);
  }
  for (const int32_t bad : {-1, 11}) {
    const std::vector<int32_t> wrong = {0, bad, 1};
    EXPECT_THROW(backend->embed(*w.weight, wrong, 1.0F, y.mat), InvalidArgument);
  }
}

TEST(KernelCheck, PassesAndCatchesAFault) {
  const auto backend = make_cpu_backend({});
  std::vector<PackedMatrix> matrices;
  std::vector<const Weight*> weights;
  for (const Codec* codec : product_codecs())
    matrices.push_back(random_weight(*backend, *codec, 509, width_for(*codec), 3));
  for (const auto& m : matrices)
    weights.push_back(m.weight.get());
  const KernelCheck report = check_kernels(*backend, weights);
  EXPECT_EQ(report.n_shapes, static_cast<int>(weights.size()));
  try {
    check_kernels(*backend, weights, {}, [](std::span<float> y) { y.back() += 1e-3F; });
    FAIL() << "a changed result went unnoticed";
  } catch (const BackendError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("509"));
  }
}

}  // namespace
}  // namespace ts
