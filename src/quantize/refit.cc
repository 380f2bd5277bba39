// The exact refit of scales (refine.h).
#include <algorithm>
#include <cmath>
#include <vector>

#include "quantize/blas.h"
#include "quantize/cholesky.h"
#include "quantize/refine.h"

namespace ts {
namespace {

/// What is solved for in each group: the scale of each plane, or the one unit of tied planes.
struct Unknowns {
  int n_planes;
  bool tied;
  int per_group;

  Unknowns(const RowBlock& block, const TernaryOptions& options)
      : n_planes(block.n_planes),
        tied(options.plane_fit == PlaneFit::kTied && block.n_planes > 1),
        per_group(tied ? 1 : block.n_planes) {}

  /// The column of C that belongs to unknown u, at one position.
  float code(const CodeRun& codes, int u, int64_t i) const noexcept {
    if (!tied) return static_cast<float>(codes.plane[u][i]);
    int sum = 0;
    for (int p = 0; p < n_planes; ++p)
      sum += tied_ratios(n_planes)[p] * codes.plane[p][i];
    return static_cast<float>(sum);
  }
  double current(const float* scales, int u) const noexcept {
    return tied ? static_cast<double>(scales[0]) / tied_ratios(n_planes)[0] : scales[u];
  }
  /// The nearest value that can be stored; 0 when there is none.
  double storable(double value) const {
    constexpr double kLargest = 65504;
    if (!(value * (tied ? tied_ratios(n_planes)[0] : 1) < kLargest)) return 0;
    return tied ? round_tied_unit(value, n_planes) : round_scale(value);
  }
  void store(const double* values, float* scales) const noexcept {
    for (int p = 0; p < n_planes; ++p)
      scales[p] = static_cast<float>(tied ? values[0] * tied_ratios(n_planes)[p] : values[p]);
  }
};

/// Solves for the changes of the active unknowns of one row; the others keep change 0. Unknowns
/// whose new value would not be positive become inactive and the rest is solved again.
/// a [k, k] symmetric (lower triangle), b [k] the right side, old [k]; false when singular.
bool solve_changes(const std::vector<double>& a, const std::vector<double>& b,
                   const std::vector<double>& old, std::vector<char>& active,
                   std::vector<double>& change) {
  const auto k = static_cast<int64_t>(b.size());
  std::vector<int64_t> index;
  std::vector<double> system, solution;
  for (int attempt = 0; attempt < 4; ++attempt) {
    index.clear();
    for (int64_t i = 0; i < k; ++i) {
      if (active[static_cast<size_t>(i)]) index.push_back(i);
    }
    const auto m = static_cast<int64_t>(index.size());
    std::fill(change.begin(), change.end(), 0.0);
    if (m == 0) return false;
    system.resize(static_cast<size_t>(m * m));
    solution.resize(static_cast<size_t>(m));
    double largest = 0;
    for (int64_t i = 0; i < m; ++i) {
      const int64_t row = index[static_cast<size_t>(i)];
      for (int64_t j = 0; j <= i; ++j)
        system[static_cast<size_t>(i * m + j)] =
            a[static_cast<size_t>(row * k + index[static_cast<size_t>(j)])];
      solution[static_cast<size_t>(i)] = b[static_cast<size_t>(row)];
      largest = std::max(largest, system[static_cast<size_t>(i * m + i)]);
    }
    // Two planes with the same codes in a group make the system singular; the ridge decides.
    for (int64_t i = 0; i < m; ++i)
      system[static_cast<size_t>(i * m + i)] += 1e-7 * largest;
    if (!cholesky_small(system.data(), m, m)) return false;
    cholesky_solve(system.data(), m, m, solution.data());
    bool all_positive = true;
    for (int64_t i = 0; i < m; ++i) {
      const auto at = static_cast<size_t>(index[static_cast<size_t>(i)]);
      change[at] = solution[static_cast<size_t>(i)];
      if (!(old[at] + change[at] > 0)) {
        active[at] = 0;
        all_positive = false;
      }
    }
    if (all_positive) return true;
  }
  return false;
}

}  // namespace

int64_t refit_scales(const RowBlock& block, const LossMetric& metric, const TernaryOptions& options,
                     std::vector<float>& errors, const std::vector<float>& gradients) {
  const int64_t n = block.cols;
  const Unknowns unknowns(block, options);
  const int64_t groups = block.n_groups();
  const int64_t units = unknowns.per_group;
  const int64_t k = groups * units;
  // Fewer rows at a time when the systems are large.
  const int64_t at_once = k <= 128 ? kBlockRows : 8;
  std::vector<float> codes(static_cast<size_t>(units * at_once * n));  // [unit, row, n]
  std::vector<float> product(static_cast<size_t>(at_once * n));
  std::vector<std::vector<double>> systems(static_cast<size_t>(at_once));
  std::vector<double> right(static_cast<size_t>(k)), old(right.size()), change(right.size());
  std::vector<char> active(right.size());
  int64_t n_changed = 0;
  for (int64_t r0 = 0; r0 < block.rows; r0 += at_once) {
    block.check_cancelled();
    const int64_t m = std::min(at_once, block.rows - r0);
    for (int64_t u = 0; u < units; ++u) {
      for (int64_t r = 0; r < m; ++r) {
        const CodeRun run = block.codes.at((r0 + r) * n);
        float* out = codes.data() + (u * at_once + r) * n;
        for (int64_t i = 0; i < n; ++i)
          out[i] = unknowns.code(run, static_cast<int>(u), i);
      }
    }
    for (auto& system : systems)
      system.assign(static_cast<size_t>(k * k), 0.0);
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * block.group;
      const int64_t size = block.group_end(begin) - begin;
      for (int64_t u = 0; u < units; ++u) {
        // Rows of H that belong to the group, from its first column on: the rest is symmetric.
        const int64_t width = n - begin;
        blas::gemm(m, width, size, 1.0F, codes.data() + u * at_once * n + begin, n,
                   metric.matrix() + begin * n + begin, n, 0.0F, product.data(), width);
        for (int64_t r = 0; r < m; ++r) {
          std::vector<double>& system = systems[static_cast<size_t>(r)];
          for (int64_t h = g; h < groups; ++h) {
            const int64_t from = h * block.group;
            const int64_t count = block.group_end(from) - from;
            for (int64_t v = 0; v < units; ++v) {
              const float* c = codes.data() + (v * at_once + r) * n + from;
              const float* y = product.data() + r * width + from - begin;
              float sum = 0;
              for (int64_t i = 0; i < count; ++i)
                sum += c[i] * y[i];
              system[static_cast<size_t>((h * units + v) * k + g * units + u)] = sum;
            }
          }
        }
      }
    }
    for (int64_t r = 0; r < m; ++r) {
      const int64_t row = r0 + r;
      const std::vector<double>& system = systems[static_cast<size_t>(r)];
      for (int64_t g = 0; g < groups; ++g) {
        float scales[kMaxPlanes];
        block.get_scales(row, g, scales);
        const int64_t begin = g * block.group;
        const int64_t end = block.group_end(begin);
        for (int64_t u = 0; u < units; ++u) {
          const float* c = codes.data() + (u * at_once + r) * n;
          double sum = 0;
          bool any = false;
          for (int64_t i = begin; i < end; ++i) {
            sum -= static_cast<double>(c[i]) * gradients[static_cast<size_t>(row * n + i)];
            any |= c[i] != 0;
          }
          const auto at = static_cast<size_t>(g * units + u);
          right[at] = sum;
          old[at] = unknowns.current(scales, static_cast<int>(u));
          active[at] = any;
        }
      }
      if (!solve_changes(system, right, old, active, change)) continue;
      // The change as it can be stored, and what it does to the loss.
      bool any_change = false;
      for (size_t i = 0; i < change.size(); ++i) {
        if (!active[i]) continue;
        const double stored = unknowns.storable(old[i] + change[i]);
        change[i] = stored > 0 ? stored - old[i] : 0.0;
        any_change |= change[i] != 0;
      }
      double loss = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double c = change[static_cast<size_t>(i)];
        if (c == 0) continue;
        double sum = system[static_cast<size_t>(i * k + i)] * c;
        for (int64_t j = 0; j < i; ++j)
          sum += 2 * system[static_cast<size_t>(i * k + j)] * change[static_cast<size_t>(j)];
        loss += c * (sum - 2 * right[static_cast<size_t>(i)]);
      }
      if (!any_change || !(loss < 0)) continue;
      ++n_changed;
      const CodeRun run = block.codes.at(row * n);
      for (int64_t g = 0; g < groups; ++g) {
        double values[kMaxPlanes];
        for (int64_t u = 0; u < units; ++u) {
          const auto at = static_cast<size_t>(g * units + u);
          values[u] = old[at] + change[at];
        }
        float scales[kMaxPlanes];
        unknowns.store(values, scales);
        block.set_scales(row, g, scales);
        const int64_t begin = g * block.group;
        for (int64_t i = begin; i < block.group_end(begin); ++i) {
          float value = 0;
          for (int p = 0; p < block.n_planes; ++p)
            value += static_cast<float>(run.plane[p][i]) * scales[p];
          block.values[row * n + i] = value;
          errors[static_cast<size_t>(row * n + i)] = value - block.weights[row * n + i];
        }
      }
    }
  }
  return n_changed;
}

}  // namespace ts
