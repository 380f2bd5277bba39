#include "convert/row_order.h"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ts {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> sources(int64_t n_rows, int64_t head_dim) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < n_rows; ++r)
    rows.push_back(llama_source_row(r, head_dim));
  return rows;
}

TEST(RowOrderTest, LlamaQueryAndKeyRows) {
  EXPECT_THAT(sources(16, 4), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15));
  EXPECT_THAT(sources(8, 4), ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
  EXPECT_THAT(sources(8, 8), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
}

TEST(RowOrderTest, TheWayBack) {
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < 8; ++r)
    rows.push_back(llama_gguf_row(r, 8));
  EXPECT_THAT(rows, ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  for (const int64_t head_dim : {2, 4, 8, 64, 128}) {
    for (int64_t r = 0; r < 3 * head_dim; ++r) {
      EXPECT_EQ(llama_gguf_row(llama_source_row(r, head_dim), head_dim), r);
      EXPECT_EQ(llama_source_row(llama_gguf_row(r, head_dim), head_dim), r);
    }
  }
}

/// Turning half-split pairs and reordering is the same as reordering and turning neighbours.
TEST(RowOrderTest, ReorderedRowsTurnInNeighbourPairs) {
  constexpr int64_t kHeadDim = 16, kRows = 3 * kHeadDim, kPosition = 11;
  std::vector<double> x(kRows);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(1.0 + static_cast<double>(i * i));
  const auto turn = [&](const std::vector<double>& in, auto first, auto second) {
    std::vector<double> out = in;
    for (int64_t h = 0; h < kRows; h += kHeadDim) {
      for (int64_t j = 0; j < kHeadDim / 2; ++j) {
        const double angle =
            kPosition * std::pow(10000.0, -2.0 * static_cast<double>(j) / kHeadDim);
        const auto a = static_cast<size_t>(h + first(j)), b = static_cast<size_t>(h + second(j));
        out[a] = in[a] * std::cos(angle) - in[b] * std::sin(angle);
        out[b] = in[a] * std::sin(angle) + in[b] * std::cos(angle);
      }
    }
    return out;
  };
  const auto reorder = [&](const std::vector<double>& in) {
    std::vector<double> out(in.size());
    for (int64_t r = 0; r < kRows; ++r)
      out[static_cast<size_t>(r)] = in[static_cast<size_t>(llama_source_row(r, kHeadDim))];
    return out;
  };
  const auto half_split = turn(
      x, [](int64_t j) { return j; }, [](int64_t j) { return j + kHeadDim / 2; });
  const auto neighbours = turn(
      reorder(x), [](int64_t j) { return 2 * j; }, [](int64_t j) { return 2 * j + 1; });
  const auto expected = reorder(half_split);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(neighbours[i], expected[i], 1e-12);
}

}  // namespace
}  // namespace ts
