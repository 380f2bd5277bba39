// Coordinate descent by pairs (refine.h).
//
// After the descent no single weight can move with profit, but two can: moving j by d and k by e
// changes the loss of the row by s_j + s_k + 2 d e H_jk, where s_j = 2 d g_j + d^2 H_jj >= 0 is
// what each costs alone. Only weights near a rounding threshold have an s_j small enough for this,
// so it is enough to look for pairs among the n / 6 cheapest moves of a row.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "quantize/refine.h"

namespace ts {
namespace {

constexpr int64_t kShare = 6;        // of the weights of a row, 1 in kShare is a candidate
constexpr float kLeastGain = 1e-5F;  // of a whole step; less is rounding noise

/// The cheapest move of one position: to the next level in the direction it would like to go.
struct Move {
  float change = 0;
  float cost = std::numeric_limits<float>::infinity();  // alone; infinite: it cannot move there
};

class RowPairs {
 public:
  RowPairs(const RowBlock& block, const LossMetric& metric, int64_t row, float* errors,
           float* gradients)
      : block_(block),
        h_(metric.matrix()),
        n_(block.cols),
        values_(block.values + row * n_),
        weights_(block.weights + row * n_),
        errors_(errors + row * n_),
        gradients_(gradients + row * n_),
        codes_(block.codes.at(row * n_)),
        levels_(static_cast<size_t>(block.n_groups())) {
    for (int64_t g = 0; g < block.n_groups(); ++g) {
      float scales[kMaxPlanes];
      block.get_scales(row, g, scales);
      levels_[static_cast<size_t>(g)].set(scales, block.n_planes);
    }
  }

  int64_t run() {
    choose_candidates();
    int64_t moved = 0;
    for (size_t i = 0; i < candidates_.size(); ++i)
      moved += improve(i);
    return moved;
  }

 private:
  Move cheapest(int64_t j) const noexcept {
    const float diagonal = h_[j * n_ + j];
    const float wish = -gradients_[j] / diagonal;
    const float next = levels_of(j).next(values_[j], wish > 0);
    if (next == values_[j]) return {};
    const float change = next - values_[j];
    return {change, change * (2 * gradients_[j] + change * diagonal)};
  }
  const Levels& levels_of(int64_t j) const noexcept {
    return levels_[static_cast<size_t>(j / block_.group)];
  }

  void choose_candidates() {
    std::vector<std::pair<float, int64_t>> order;
    for (int64_t j = 0; j < n_; ++j) {
      const Move move = cheapest(j);
      if (std::isfinite(move.cost))
        order.emplace_back(move.cost / h_[j * n_ + j] / (move.change * move.change), j);
    }
    const size_t count = std::min(order.size(), static_cast<size_t>(n_ / kShare));
    std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(count), order.end());
    for (size_t i = 0; i < count; ++i)
      candidates_.push_back(order[i].second);
    moves_.resize(count);
    refresh();
  }
  void refresh() noexcept {
    for (size_t i = 0; i < candidates_.size(); ++i)
      moves_[i] = cheapest(candidates_[i]);
  }

  /// Finds the best partner of candidate i and makes the two moves if they pay.
  bool improve(size_t i) {
    const int64_t j = candidates_[i];
    const float* row = h_ + j * n_;
    const Move& own = moves_[i];
    if (!std::isfinite(own.cost)) return false;
    float best = -kLeastGain * own.change * own.change * row[j];
    size_t partner = i;
    for (size_t k = 0; k < candidates_.size(); ++k) {
      const float total =
          own.cost + moves_[k].cost + 2 * own.change * moves_[k].change * row[candidates_[k]];
      if (total < best && k != i) {
        best = total;
        partner = k;
      }
    }
    if (partner == i) return false;
    const float change = own.change;
    const float other = moves_[partner].change;
    make(j, change);
    make(candidates_[partner], other);
    refresh();
    return true;
  }

  void make(int64_t j, float change) {
    const float wanted = values_[j] + change;
    const Level& level = levels_of(j).nearest(std::fabs(wanted));
    const float value = wanted < 0 ? -level.value : level.value;
    codes_.set(j, block_.n_planes, level, wanted < 0);
    const float exact = value - values_[j];
    values_[j] = value;
    errors_[j] = value - weights_[j];
    const float* row = h_ + j * n_;
    for (int64_t k = 0; k < n_; ++k)
      gradients_[k] += exact * row[k];
  }

  const RowBlock& block_;
  const float* h_;
  int64_t n_;
  float* values_;
  const float* weights_;
  float* errors_;
  float* gradients_;
  CodeRun codes_;
  std::vector<Levels> levels_;
  std::vector<int64_t> candidates_;
  std::vector<Move> moves_;
};

}  // namespace

int64_t descend_by_pairs(const RowBlock& block, const LossMetric& metric,
                         std::vector<float>& errors, std::vector<float>& gradients) {
  int64_t moved = 0;
  for (int64_t r = 0; r < block.rows; ++r)
    moved += RowPairs(block, metric, r, errors.data(), gradients.data()).run();
  return moved;
}

}  // namespace ts
