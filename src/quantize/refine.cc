#include "quantize/refine.h"

#include <algorithm>
#include <cmath>

#include "quantize/blas.h"

namespace ts {
namespace {

/// The state of one row during a descent.
struct Row {
  const LossMetric& metric;
  const float* weights;
  float* values;
  float* errors;
  float* gradients;
  int64_t n;

  /// Gives position j the value `value`.
  void move(int64_t j, float value) const noexcept {
    const float change = value - values[j];
    values[j] = value;
    errors[j] = value - weights[j];
    const float* h = metric.matrix() + j * n;
    for (int64_t k = 0; k < n; ++k)
      gradients[k] += change * h[k];
  }
  float diagonal(int64_t j) const noexcept { return metric.matrix()[j * n + j]; }
  /// The value position j would take if it were free.
  float target(int64_t j) const noexcept { return values[j] - gradients[j] / diagonal(j); }
};

int64_t descend_dense(const Row& row, int64_t begin, int64_t end, const Levels& levels,
                      int n_planes, const CodeRun& codes) {
  int64_t changed = 0;
  for (int64_t j = begin; j < end; ++j) {
    const float target = row.target(j);
    const Level& level = levels.nearest(std::fabs(target));
    const float value = target < 0 ? -level.value : level.value;
    if (value == row.values[j]) continue;
    row.move(j, value);
    codes.set(j, n_planes, level, target < 0);
    ++changed;
  }
  return changed;
}

/// The change of the row's loss when the four positions from j on take `values`.
double loss_change(const Row& row, int64_t j, const float* values) noexcept {
  double change[4];
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    change[i] = static_cast<double>(values[i]) - row.values[j + i];
    sum += 2 * change[i] * row.gradients[j + i];
  }
  for (int i = 0; i < 4; ++i) {
    const float* h = row.metric.matrix() + (j + i) * row.n + j;
    for (int k = 0; k < 4; ++k)
      sum += change[i] * change[k] * h[k];
  }
  return sum;
}

/// One block of four under a sparse pattern. One plane: every pattern is tried. Several: the
/// patterns that are best when the four positions are taken for independent, and every move of a
/// single position that keeps its planes; a move is made only if the loss falls.
class SparseMove {
 public:
  SparseMove(const Sparsity& sparsity, int n_planes)
      : pattern_(sparsity, n_planes), n_planes_(n_planes) {}

  bool improve(const Row& row, int64_t j, const Levels& levels, const CodeRun& codes) const {
    float best[4];
    std::copy_n(row.values + j, 4, best);
    double best_change = 0;
    const auto consider = [&](const float* values) {
      const double change = loss_change(row, j, values);
      if (change < best_change) {
        best_change = change;
        std::copy_n(values, 4, best);
      }
    };
    if (n_planes_ == 1) {
      const float scale = levels.all(levels.n_all() - 1).value;
      for (int s = 0; s < pattern_.n_supports(); ++s) {
        const unsigned support = pattern_.support(s);
        for (unsigned signs = 0; signs < 16; ++signs) {
          if ((signs & ~support) != 0) continue;
          float values[4];
          for (int i = 0; i < 4; ++i)
            values[i] = (support >> i & 1u) == 0 ? 0.0F : (signs >> i & 1u) ? -scale : scale;
          consider(values);
        }
      }
      if (!(best_change < -kLeast * row.diagonal(j) * scale * scale)) return false;
      for (int i = 0; i < 4; ++i) {
        codes.plane[0][j + i] = static_cast<int8_t>(best[i] > 0 ? 1 : best[i] < 0 ? -1 : 0);
        if (best[i] != row.values[j + i]) row.move(j + i, best[i]);
      }
      return true;
    }
    return improve_planes(row, j, levels, codes);
  }

 private:
  /// Gains below this share of a whole step are rounding noise.
  static constexpr double kLeast = 1e-6;

  bool improve_planes(const Row& row, int64_t j, const Levels& levels, const CodeRun& codes) const {
    float targets[4];
    float importance[4];
    for (int i = 0; i < 4; ++i) {
      targets[i] = row.target(j + i);
      importance[i] = row.diagonal(j + i);
    }
    uint8_t states[4];
    pattern_.choose(targets, importance, levels, states);
    const float step = levels.all(1).value;
    const double least = kLeast * row.diagonal(j) * step * step;
    float values[4];
    for (int i = 0; i < 4; ++i)
      values[i] = signed_level(levels, targets[i], states[i]);
    bool changed = false;
    if (loss_change(row, j, values) < -least) {
      for (int i = 0; i < 4; ++i)
        put(row, j + i, levels, targets[i], states[i], codes);
      changed = true;
    }
    for (int i = 0; i < 4; ++i) {
      uint8_t state = 0;
      for (int p = 0; p < n_planes_; ++p)
        state = static_cast<uint8_t>(state | (codes.plane[p][j + i] != 0 ? 1 << p : 0));
      std::copy_n(row.values + j, 4, values);
      const float target = row.target(j + i);
      values[i] = signed_level(levels, target, state);
      if (loss_change(row, j, values) < -least) {
        put(row, j + i, levels, target, state, codes);
        changed = true;
      }
    }
    return changed;
  }

  static float signed_level(const Levels& levels, float target, uint8_t state) noexcept {
    const float value = nearest_of_state(levels, std::fabs(target), state).value;
    return target < 0 ? -value : value;
  }
  void put(const Row& row, int64_t j, const Levels& levels, float target, uint8_t state,
           const CodeRun& codes) const {
    const Level& level = nearest_of_state(levels, std::fabs(target), state);
    codes.set(j, n_planes_, level, target < 0);
    row.move(j, target < 0 ? -level.value : level.value);
  }

  BlockOfFour pattern_;
  int n_planes_;
};

}  // namespace

int64_t descend(const RowBlock& block, const LossMetric& metric, const TernaryOptions& options,
                std::vector<float>& errors, std::vector<float>& gradients) {
  const SparseMove sparse(options.sparsity, block.n_planes);
  int64_t changed = 0;
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t at = r * block.cols;
    const Row row{
        metric,    block.weights + at, block.values + at, errors.data() + at, gradients.data() + at,
        block.cols};
    const CodeRun codes = block.codes.at(at);
    for (int64_t g = 0; g < block.n_groups(); ++g) {
      float scales[kMaxPlanes];
      block.get_scales(r, g, scales);
      Levels levels;
      levels.set(scales, block.n_planes);
      const int64_t begin = g * block.group;
      const int64_t end = block.group_end(begin);
      if (options.sparsity.dense()) {
        changed += descend_dense(row, begin, end, levels, block.n_planes, codes);
      } else {
        for (int64_t j = begin; j < end; j += 4)
          changed += sparse.improve(row, j, levels, codes);
      }
    }
  }
  return changed;
}

void refine(const RowBlock& block, const LossMetric& metric, const TernaryOptions& options,
            int sweeps) {
  const auto count = static_cast<size_t>(block.rows * block.cols);
  std::vector<float> errors(count);
  std::vector<float> gradients(count);
  for (size_t i = 0; i < count; ++i)
    errors[i] = block.values[i] - block.weights[i];
  for (int round = 0; round <= sweeps; ++round) {
    block.check_cancelled();
    blas::gemm(block.rows, block.cols, block.cols, 1.0F, errors.data(), block.cols, metric.matrix(),
               block.cols, 0.0F, gradients.data(), block.cols);
    int64_t moved = descend(block, metric, options, errors, gradients);
    for (int pass = 0; options.sparsity.dense() && pass < options.pair_passes; ++pass) {
      const int64_t pairs = descend_by_pairs(block, metric, errors, gradients);
      if (pairs == 0) break;
      moved += pairs + descend(block, metric, options, errors, gradients);
    }
    if (round == sweeps) break;
    const int64_t refitted = refit_scales(block, metric, options, errors, gradients);
    if (moved == 0 && refitted == 0) break;
  }
}

}  // namespace ts
