// Rotations: signs, order of operations, grouped heads, folding.
#include "hadamard/rotation.h"

#include <cmath>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "support/error_matchers.h"

namespace ts {
namespace {

using testing::ElementsAreArray;
using Row = std::vector<float>;

const std::vector<int8_t> kSigns = {1, -1, -1, 1, 1, 1, -1, -1};

Row forward(const Rotation& r, const Row& x) {
  Row y(x.size());
  r.forward(x.data(), y.data());
  return y;
}
Row inverse(const Rotation& r, const Row& x) {
  Row y(x.size());
  r.inverse(x.data(), y.data());
  return y;
}

TEST(Rotation, SignsComeBeforeTheTransformAndAfterItBackwards) {
  const Rotation rotation(8, 4, kSigns);
  const Row x = {1, 2, 3, 4, 5, 6, 7, 8};
  const Row rotated = forward(rotation, x);
  EXPECT_EQ(rotated, (Row{0, -2, -1, 5, -2, 0, 13, -1}));
  EXPECT_EQ(inverse(rotation, rotated), x);
  Row in_place = rotated;
  rotation.inverse(in_place.data(), in_place.data());
  EXPECT_EQ(in_place, x);
  // One block of eight, with signs: the unnormalised sums.
  const Row eight = forward(Rotation(8, 8, kSigns), x);
  const float sums[8] = {-4, -4, 24, 8, 4, -4, -28, 12};
  for (size_t i = 0; i < 8; ++i)
    EXPECT_EQ(eight[i], sums[i] * 0.35355339F) << i;
}

TEST(Rotation, FoldedRowsTimesRotatedInputAreTheProduct) {
  const Rotation rotation(8, 4, kSigns);
  std::vector<std::vector<double>> rows = {{1, 0, -1, 2, 0, 1, 1, -1}, {2, 1, 0, 0, -1, 0, 1, 1}};
  const Row x = {1, 2, 3, 4, 5, 6, 7, 8};
  const Row rotated = forward(rotation, x);
  const double products[2] = {11, 14}, unrotated[2] = {4, 0}, wrong_order[2] = {17, -13};
  const std::vector<std::vector<double>> folded = {{2, 0, -1, 1, 0.5, -1.5, 0.5, 0.5},
                                                   {0.5, 1.5, 0.5, 1.5, -1.5, -0.5, 0.5, -0.5}};
  Row signs_last = x;  // the mistake: transform, then signs
  Rotation(8, 4).forward(x.data(), signs_last.data());
  for (size_t i = 0; i < 8; ++i)
    signs_last[i] *= static_cast<float>(kSigns[i]);
  EXPECT_EQ(signs_last, (Row{5, 1, 2, 0, 13, -1, 2, 0}));
  const auto dot = [](const std::vector<double>& w, const Row& v) {
    double sum = 0;
    for (size_t i = 0; i < v.size(); ++i)
      sum += w[i] * static_cast<double>(v[i]);
    return sum;
  };
  for (size_t r = 0; r < 2; ++r) {
    rotation.fold_row(rows[r]);
    EXPECT_EQ(rows[r], folded[r]);
    EXPECT_EQ(dot(rows[r], rotated), products[r]);
    EXPECT_EQ(dot(rows[r], x), unrotated[r]);
    EXPECT_EQ(dot(rows[r], signs_last), wrong_order[r]);
  }
}

TEST(Rotation, GroupedHeadsMoveAsAWhole) {
  // Two key heads, three value heads each, two elements a head; signs and transform off.
  const Rotation rotation(12, 1, {}, GroupedHeads{2, 3, 2});
  Row tiled(12);
  for (size_t i = 0; i < 12; ++i)
    tiled[i] = static_cast<float>(i);
  EXPECT_EQ(forward(rotation, tiled), (Row{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  // Any part of it, also from within a head.
  for (size_t begin = 0; begin < 12; ++begin) {
    for (size_t count = 0; begin + count <= 12; ++count) {
      Row part(count + 1, -1.0F), whole = forward(rotation, tiled);
      rotation.gather(tiled.data(), begin, count, part.data());
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(part[i], whole[begin + i]);
      EXPECT_EQ(part[count], -1.0F);
    }
  }
}

TEST(Rotation, PermutationThenSignsThenTransform) {
  const std::vector<int8_t> signs = {1, -1, -1, -1, 1, 1, 1, 1, 1, 1, -1, -1, -1, 1, 1, 1};
  Row tiled(16);
  for (size_t i = 0; i < 16; ++i)
    tiled[i] = static_cast<float>(i + 1);
  const GroupedHeads heads = {2, 2, 4};
  EXPECT_EQ(forward(Rotation(16, 4, signs, heads), tiled),
            (Row{-4, 2, 3, 1, 21, -1, -2, 0, -2, 0, 13, -1, 16, -14, -15, -13}));
  EXPECT_EQ(forward(Rotation(16, 16, signs, heads), tiled),
            (Row{15.5F, -6.5F, -0.5F, -6.5F, -21.5F, 8.5F, 16.5F, 6.5F, 1.5F, 7.5F, 1.5F, 7.5F,
                 -3.5F, -5.5F, -11.5F, -5.5F}));
  // The inverse leaves the grouped order.
  EXPECT_EQ(inverse(Rotation(16, 4, signs, heads), forward(Rotation(16, 4, signs, heads), tiled)),
            (Row{1, 2, 3, 4, 9, 10, 11, 12, 5, 6, 7, 8, 13, 14, 15, 16}));
}

TEST(Rotation, FoldingIsTheForwardOperatorInDoubles) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  std::vector<int8_t> signs(192);
  for (int8_t& s : signs)
    s = rng() % 2 == 0 ? 1 : -1;
  const Rotation rotation(192, 64, signs, GroupedHeads{2, 3, 32});
  Row w(192), x(192);
  for (size_t i = 0; i < 192; ++i) {
    w[i] = normal(rng);
    x[i] = normal(rng);
  }
  std::vector<double> folded(w.begin(), w.end());
  rotation.fold_row(folded);
  const Row single = forward(rotation, w), rotated = forward(rotation, x);
  double product = 0, want = 0;
  for (size_t i = 0; i < 192; ++i) {
    EXPECT_NEAR(folded[i], static_cast<double>(single[i]), 2e-6);
    product += folded[i] * static_cast<double>(rotated[i]);
    want += static_cast<double>(w[i]) * static_cast<double>(x[i]);
  }
  EXPECT_NEAR(product, want, 1e-5);
}

TEST(Rotation, BadArgumentsAreNamed) {
  const std::vector<int8_t> short_signs(7, 1), zero_sign = {1, 1, 1, 0, 1, 1, 1, 1};
  EXPECT_EQ(test::catch_error([] { Rotation(12, 8); }).code, ErrorCode::kHadamardDimension);
  EXPECT_EQ(test::catch_error([] { Rotation(12, 6); }).code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(test::catch_error([&] { Rotation(8, 4, short_signs); }).message,
              testing::HasSubstr("7 signs"));
  EXPECT_THAT(test::catch_error([&] { Rotation(8, 4, zero_sign); }).message,
              testing::HasSubstr("a sign is 0"));
  for (const GroupedHeads heads :
       {GroupedHeads{2, 2, 3}, GroupedHeads{0, 2, 4}, GroupedHeads{2, -1, 4},
        GroupedHeads{INT64_MAX, INT64_MAX, INT64_MAX}})
    EXPECT_EQ(test::catch_error([&] { Rotation(8, 4, {}, heads); }).code,
              ErrorCode::kInvalidArgument);
  std::vector<double> row(9);
  EXPECT_EQ(test::catch_error([&] { Rotation(8, 4).fold_row(row); }).code,
            ErrorCode::kInvalidArgument);
  EXPECT_NE(Rotation(8, 4).id(), Rotation(8, 4).id());
}

}  // namespace
}  // namespace ts
