// The transform against the definition of its matrix, and its argument checks.
#include "hadamard/transform.h"

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "support/error_matchers.h"

namespace ts {
namespace {

std::vector<float> random_row(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x)
    v = normal(rng);
  return x;
}

TEST(Transform, WorkedExamples) {
  std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
  transform_blocks(x.data(), 8, 4);
  EXPECT_EQ(x, (std::vector<float>{5, -1, -2, 0, 13, -1, -2, 0}));
  // Block 8: the unnormalised sums times 1/sqrt(8).
  const float factor = transform_factor(8);
  EXPECT_EQ(factor, 0.35355339F);
  std::vector<float> y = {1, 2, 3, 4, 5, 6, 7, 8};
  transform_blocks(y.data(), 8, 8);
  const float sums[8] = {36, -4, -8, 0, -16, 0, 0, 0};
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(y[i], sums[i] * factor) << i;
}

TEST(Transform, EqualsItsMatrix) {
  for (size_t block = 1; block <= 512; block *= 2) {
    const std::vector<float> x = random_row(block, static_cast<uint32_t>(block));
    std::vector<float> y = x;
    transform_blocks(y.data(), block, block);
    std::vector<double> precise(x.begin(), x.end());
    transform_blocks(precise.data(), block, block);
    for (size_t r = 0; r < block; ++r) {
      double want = 0;
      for (size_t c = 0; c < block; ++c)
        want += (std::popcount(r & c) % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(x[c]);
      want /= std::sqrt(static_cast<double>(block));
      EXPECT_NEAR(static_cast<double>(y[r]), want, 2e-6) << "block " << block << " row " << r;
      EXPECT_NEAR(precise[r], want, 1e-13) << "block " << block << " row " << r;
    }
  }
}

TEST(Transform, FactorIsTheRoundedRoot) {
  for (int64_t block = 1; block <= kMaxTransformBlock; block *= 2)
    EXPECT_EQ(transform_factor(block),
              static_cast<float>(1.0 / std::sqrt(static_cast<double>(block))))
        << block;
}

TEST(Transform, PreservesNormsAndUndoesItself) {
  for (size_t block = 2; block <= 8192; block *= 2) {
    const std::vector<float> x = random_row(2 * block, 5);
    std::vector<float> y = x;
    transform_blocks(y.data(), y.size(), block);
    for (size_t b = 0; b < 2; ++b) {
      double before = 0, after = 0;
      for (size_t i = b * block; i < (b + 1) * block; ++i) {
        before += static_cast<double>(x[i]) * static_cast<double>(x[i]);
        after += static_cast<double>(y[i]) * static_cast<double>(y[i]);
      }
      // A forgotten factor would change this by the block size.
      EXPECT_NEAR(after / before, 1.0, 1e-5) << block;
    }
    transform_blocks(y.data(), y.size(), block);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_NEAR(y[i], x[i], 4e-6) << "block " << block << " element " << i;
  }
}

TEST(Transform, BlocksAreIndependent) {
  std::vector<float> x = random_row(96, 6), other = x;
  for (size_t i = 32; i < 64; ++i)
    other[i] = 100.0F;
  transform_blocks(x.data(), 96, 32);
  transform_blocks(other.data(), 96, 32);
  for (size_t i = 0; i < 96; ++i) {
    if (i < 32 || i >= 64) {
      EXPECT_EQ(x[i], other[i]) << i;
    }
  }
}

TEST(Transform, BlockThatDoesNotDivideNamesThoseThatDo) {
  EXPECT_THAT(fitting_blocks(576), testing::ElementsAre(64, 32, 16, 8, 4, 2));
  EXPECT_THAT(fitting_blocks(7), testing::IsEmpty());
  EXPECT_EQ(fitting_blocks(1 << 20).front(), 8192);
  try {
    require_block(576, 128, "--rotate");
    FAIL() << "accepted";
  } catch (const HadamardDimensionError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kHadamardDimension);
    EXPECT_THAT(error.suggested_blocks(), testing::ElementsAre(64, 32, 16, 8, 4, 2));
    EXPECT_THAT(error.what(),
                testing::AllOf(testing::HasSubstr("--rotate"), testing::HasSubstr("576"),
                               testing::HasSubstr("64, 32")));
  }
  for (const int64_t bad :
       {int64_t{0}, int64_t{-4}, int64_t{3}, int64_t{16384}, INT64_MIN, INT64_MAX})
    EXPECT_EQ(test::catch_error([&] { require_block(49152, bad, "x"); }).code,
              ErrorCode::kInvalidArgument)
        << bad;
  EXPECT_EQ(test::catch_error([&] { require_block(0, 2, "x"); }).code,
            ErrorCode::kHadamardDimension);
  EXPECT_NO_THROW(require_block(576, 64, "x"));
}

}  // namespace
}  // namespace ts
