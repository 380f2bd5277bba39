#include "eval/tensor_statistics.h"

#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "base/half.h"

namespace ts {
namespace {

TensorStatistics statistics(const Codec& codec, const std::vector<std::byte>& bytes, Shape shape,
                            int threads = 1) {
  TensorView view{"w", codec.id, shape, bytes};
  ThreadPool pool(threads);
  return compute_tensor_statistics(view, codec, pool, {});
}

std::vector<std::byte> encode_f32(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST(TensorStatistics, CountsTernarySymbols) {
  const Codec& codec = *find_codec(TypeId::kPQ2_0);
  ASSERT_TRUE(codec.is_ternary());
  // Four groups of 128: scales 1, 0.5, 2 and an empty one.
  std::vector<int8_t> codes(512, 0);
  for (size_t i = 0; i < 384; ++i)
    codes[i] = static_cast<int8_t>(i % 4 == 0 ? -1 : i % 4 == 1 ? 1 : 0);
  const std::vector<uint16_t> scales = {float_to_half(1), float_to_half(0.5F), float_to_half(2), 0};
  std::vector<std::byte> bytes(codec.row_bytes(512));
  codec.pack(codes.data(), scales.data(), bytes.data(), 512);
  const TensorStatistics s = statistics(codec, bytes, {256, 2});
  EXPECT_EQ(s.n_elems, 512u);
  EXPECT_EQ(s.histogram, (std::vector<uint64_t>{96, 320, 96, 0}));
  EXPECT_DOUBLE_EQ(s.zero_rate, 320.0 / 512);
  const double p = 96.0 / 512, z = 320.0 / 512;
  EXPECT_NEAR(s.entropy_bits, -2 * p * std::log2(p) - z * std::log2(z), 1e-12);
  EXPECT_EQ(s.n_groups, 4u);
  EXPECT_EQ(s.n_zero_groups, 1u);
  EXPECT_EQ(s.scale_min, 0);
  EXPECT_EQ(s.scale_max, 2);
  EXPECT_EQ(s.scale_median, 1);
  EXPECT_NEAR(s.rms, std::sqrt(64 * (1 + 0.25 + 4) / 512), 1e-12);
}

TEST(TensorStatistics, MomentsOfPlainValues) {
  std::vector<float> values(8 * 40);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i) * 1.7F) + (i == 17 ? 9.0F : 0.2F);
  const TensorStatistics s = statistics(*find_codec(TypeId::kF32), encode_f32(values), {40, 8});
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double second = 0, fourth = 0, square = 0;
  for (const float v : values) {
    square += static_cast<double>(v) * v;
    second += std::pow(v - mean, 2);
    fourth += std::pow(v - mean, 4);
  }
  EXPECT_NEAR(s.mean, mean, 1e-9);
  EXPECT_NEAR(s.rms, std::sqrt(square / n), 1e-9);
  EXPECT_NEAR(s.kurtosis, fourth / n / std::pow(second / n, 2), 1e-6);
  EXPECT_NEAR(s.outlier_ratio, s.max / s.rms, 1e-9);
  EXPECT_EQ(s.group_elems, 40u);
  EXPECT_EQ(s.n_groups, 8u);
  EXPECT_EQ(std::accumulate(s.histogram.begin(), s.histogram.end(), uint64_t{0}), values.size());
}

TEST(TensorStatistics, NonFiniteValuesAreCountedApart) {
  std::vector<float> values(64, 1.0F);
  values[3] = NAN;
  values[40] = -INFINITY;
  const TensorStatistics s = statistics(*find_codec(TypeId::kF32), encode_f32(values), {32, 2});
  EXPECT_EQ(s.n_non_finite, 2u);
  EXPECT_EQ(s.rms, 1);
  EXPECT_EQ(s.max, 1);
}

TEST(TensorStatistics, ThreadsDoNotChangeTheResult) {
  std::vector<float> values(size_t{1024} * 1200);
  uint32_t state = 1;
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  const auto bytes = encode_f32(values);
  const TensorStatistics one = statistics(*find_codec(TypeId::kF32), bytes, {1024, 1200}, 1);
  const TensorStatistics three = statistics(*find_codec(TypeId::kF32), bytes, {1024, 1200}, 3);
  EXPECT_EQ(one.mean, three.mean);
  EXPECT_EQ(one.kurtosis, three.kurtosis);
  EXPECT_EQ(one.histogram, three.histogram);
  EXPECT_EQ(one.scale_median, three.scale_median);
}

TEST(TensorStatistics, EmptyTensor) {
  const TensorStatistics s = statistics(*find_codec(TypeId::kF32), {}, {0, 4});
  EXPECT_EQ(s.n_elems, 0u);
  EXPECT_EQ(s.n_groups, 0u);
}

}  // namespace
}  // namespace ts
