#include "quantize/group_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/half.h"

namespace ts {
namespace {

constexpr double kLargestHalf = 65504.0;

/// Optimal scale / sigma of one sparse plane on Gaussian weights: where the alternation starts.
double sparse_start(const Sparsity& s) noexcept {
  struct Row {
    int min, max;
    double scale;
  };
  constexpr Row kRows[] = {{1, 1, 1.4646}, {2, 2, 1.1879}, {3, 3, 0.9763}, {4, 4, 0.7979},
                           {1, 2, 1.3141}, {0, 2, 1.3517}, {1, 3, 1.2261}, {0, 3, 1.2505}};
  for (const Row& row : kRows) {
    if (row.min == s.min_nonzero && row.max == s.max_nonzero) return row.scale;
  }
  return 1.2240;
}

using Start = std::array<double, kMaxPlanes>;

/// Scales / sigma where the alternation of several planes starts; it ends in the basin it starts
/// in. Optima on Gaussian weights, see docs/quantize-methods.md.
std::span<const Start> joint_starts(const TernaryOptions& options) noexcept {
  // A single group has several optima near that of the population: start on both sides of it, too.
  static constexpr Start kProgressive2[] = {
      {1.59024, 0.54904, 0}, {1.43, 0.49, 0}, {1.75, 0.60, 0}};
  static constexpr Start kProgressive3[] = {{1.80, 0.60, 0.20}};
  static constexpr Start kFree2[] = {{1.38014, 0.90771, 0}, {1.24, 0.82, 0}, {1.52, 1.0, 0}};
  static constexpr Start kFree3[] = {{1.6068, 0.8894, 0.5427}};
  static constexpr Start kSparse2[] = {{1.4, 0.9, 0}};
  static constexpr Start kTied2[] = {{0.45852, 0, 0}, {0.41, 0, 0}, {0.51, 0, 0}};
  static constexpr Start kTied3[] = {{0.1785, 0, 0}};
  const bool two = options.n_planes == 2;
  using Starts = std::span<const Start>;
  if (options.plane_fit == PlaneFit::kTied) return two ? Starts(kTied2) : Starts(kTied3);
  if (options.plane_fit == PlaneFit::kProgressive)
    return two ? Starts(kProgressive2) : Starts(kProgressive3);
  if (two && !options.sparsity.dense()) return kSparse2;
  return two ? Starts(kFree2) : Starts(kFree3);
}

/// Solves the symmetric n x n system in place (n <= 3); false when it is singular.
bool solve_small(double (&a)[kMaxPlanes][kMaxPlanes], double (&b)[kMaxPlanes], int n) noexcept {
  for (int k = 0; k < n; ++k) {
    if (!(a[k][k] > 0)) return false;
    for (int i = k + 1; i < n; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (int j = k; j < n; ++j)
        a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (int k = n; k-- > 0;) {
    for (int j = k + 1; j < n; ++j)
      b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return true;
}

}  // namespace

float round_scale(double scale) {
  if (!(scale <= kLargestHalf))
    throw InvalidArgument(
        fmt::format("a group of weights needs the scale {}, beyond the largest binary16 number {}",
                    scale, kLargestHalf));
  return half_to_float(float_to_half(static_cast<float>(scale)));
}

const int* tied_ratios(int n_planes) noexcept {
  static constexpr int kOne[] = {1};
  static constexpr int kTwo[] = {3, 2};
  static constexpr int kThree[] = {9, 5, 3};
  return n_planes == 3 ? kThree : n_planes == 2 ? kTwo : kOne;
}

double round_tied_unit(double unit, int n_planes) {
  if (!(unit > 0)) return 0;
  // 11 significant bits in binary16, 2 of them taken by the factor 3 or 4 by the factor 9.
  const int bits = n_planes == 3 ? 7 : 9;
  int exponent = 0;
  std::frexp(unit, &exponent);
  const double step = std::ldexp(1.0, std::max(exponent - bits, -24));
  const double rounded = std::nearbyint(unit / step) * step;
  round_scale(rounded * tied_ratios(n_planes)[0]);
  return rounded;
}

double preset_threshold(TernaryMethod method) noexcept {
  switch (method) {
    case TernaryMethod::kFixed:
      return 0.5;
    case TernaryMethod::kQuantile:
      return 0.38;
    case TernaryMethod::kTopk:
      return 0.54;
    case TernaryMethod::kL1:
      return 0.001;
    case TernaryMethod::kAbsmean:
    case TernaryMethod::kMse:
    case TernaryMethod::kGptq:
      break;
  }
  return 0;
}

GroupFitter::GroupFitter(const TernaryOptions& options)
    : options_(options), pattern_(options.sparsity, options.n_planes) {}

void GroupFitter::codes_for(const float* w, const float* h, int64_t n, const Levels& levels,
                            const CodeRun& codes, float* values) const {
  const auto put = [&](int64_t i, const Level& level) {
    codes.set(i, options_.n_planes, level, w[i] < 0);
    values[i] = w[i] < 0 ? -level.value : level.value;
  };
  if (options_.sparsity.dense()) {
    for (int64_t i = 0; i < n; ++i)
      put(i, levels.nearest(std::fabs(w[i])));
    return;
  }
  for (int64_t i = 0; i < n; i += 4) {
    uint8_t states[4];
    pattern_.choose(w + i, h ? h + i : nullptr, levels, states);
    for (int k = 0; k < 4; ++k)
      put(i + k, nearest_of_state(levels, std::fabs(w[i + k]), states[k]));
  }
}

void GroupFitter::choose_codes(const float* w, const float* h, int64_t n, const float* scales,
                               const CodeRun& codes, float* values) const {
  Levels levels;
  levels.set(scales, options_.n_planes);
  codes_for(w, h, n, levels, codes, values);
}

void GroupFitter::fit_one_plane(const float* w, const float* h, int64_t n, float* scale) {
  // For a given scale a the best support is |w| > a / 2 whatever the weights h, so the supports to
  // compare are the n prefixes of the order by |w|; the best scale of a prefix is its mean.
  double sum = 0;
  double weight = 0;
  double best_gain = 0;
  double best_scale = 0;
  if (h) {
    pairs_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      pairs_[static_cast<size_t>(i)] = {std::fabs(w[i]), h[i]};
    std::sort(pairs_.begin(), pairs_.end(), std::greater<>());
    for (const auto& [magnitude, importance] : pairs_) {
      sum += static_cast<double>(importance) * magnitude;
      weight += importance;
      if (weight > 0 && sum * sum > best_gain * weight) {
        best_gain = sum * sum / weight;
        best_scale = sum / weight;
      }
    }
  } else {
    sorted_.resize(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      sorted_[static_cast<size_t>(i)] = std::fabs(w[i]);
    std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
    for (const float magnitude : sorted_) {
      sum += magnitude;
      weight += 1;
      if (sum * sum > best_gain * weight) {
        best_gain = sum * sum / weight;
        best_scale = sum / weight;
      }
    }
  }
  *scale = round_scale(best_scale);
}

double GroupFitter::alternate(const float* w, const float* h, int64_t n, double* scales) {
  const int planes = options_.n_planes;
  const bool tied = options_.plane_fit == PlaneFit::kTied && planes > 1;
  const int units = tied ? 1 : planes;
  const int* ratios = tied_ratios(planes);
  code_storage_.resize(static_cast<size_t>(n * planes));
  value_storage_.resize(static_cast<size_t>(n));
  CodeRun codes;
  for (int p = 0; p < planes; ++p)
    codes.plane[p] = code_storage_.data() + p * n;

  double best_error = std::numeric_limits<double>::infinity();
  std::array<double, kMaxPlanes> current{};
  std::copy_n(scales, units, current.begin());
  for (int round = 0; round < 30; ++round) {
    float as_float[kMaxPlanes];
    for (int p = 0; p < planes; ++p)
      as_float[p] =
          static_cast<float>(tied ? current[0] * ratios[p] : current[static_cast<size_t>(p)]);
    Levels levels;
    levels.set(as_float, planes);
    codes_for(w, h, n, levels, codes, value_storage_.data());
    double error = 0;
    double a[kMaxPlanes][kMaxPlanes] = {};
    double b[kMaxPlanes] = {};
    for (int64_t i = 0; i < n; ++i) {
      const double importance = h ? h[i] : 1.0;
      const double miss = static_cast<double>(value_storage_[static_cast<size_t>(i)]) - w[i];
      error += importance * miss * miss;
      int code[kMaxPlanes] = {};
      if (tied) {
        for (int p = 0; p < planes; ++p)
          code[0] += ratios[p] * codes.plane[p][i];
      } else {
        for (int p = 0; p < planes; ++p)
          code[p] = codes.plane[p][i];
      }
      for (int u = 0; u < units; ++u) {
        if (code[u] == 0) continue;
        b[u] += importance * code[u] * w[i];
        for (int v = 0; v < units; ++v)
          a[u][v] += importance * code[u] * code[v];
      }
    }
    const bool better = error < best_error * (1 - 1e-6);
    if (error < best_error) {
      best_error = error;
      std::copy_n(current.begin(), units, scales);
    }
    if (!better) break;
    const double ridge = 1e-6 * a[0][0];
    for (int u = 0; u < units; ++u)
      a[u][u] += ridge;
    if (!solve_small(a, b, units)) break;
    for (int u = 0; u < units; ++u)
      current[static_cast<size_t>(u)] = std::fabs(b[u]);
    // Planes in descending order of scale (insertion: there are three at most).
    for (int u = 1; u < units && !tied; ++u) {
      for (size_t v = static_cast<size_t>(u); v > 0 && current[v] > current[v - 1]; --v)
        std::swap(current[v], current[v - 1]);
    }
    // Planes that are to be usable one by one must stay thresholds of the weight.
    if (options_.plane_fit == PlaneFit::kProgressive && options_.sparsity.dense()) {
      bool monotone = true;
      for (int p = 0; p + 1 < units; ++p)
        monotone &= current[static_cast<size_t>(p)] > 2 * current[static_cast<size_t>(p + 1)];
      if (!monotone) break;
    }
  }
  return best_error;
}

void GroupFitter::fit_scales(const float* w, const float* h, int64_t n, float* scales) {
  const int planes = options_.n_planes;
  if (planes == 1 && options_.sparsity.dense()) {
    fit_one_plane(w, h, n, scales);
    return;
  }
  double energy = 0;
  double weight = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double importance = h ? h[i] : 1.0;
    energy += importance * w[i] * w[i];
    weight += importance;
  }
  std::fill_n(scales, planes, 0.0F);
  if (!(energy > 0)) return;
  const double rms = std::sqrt(energy / weight);
  const Start one_plane[] = {{sparse_start(options_.sparsity), 0, 0}};
  double best_error = std::numeric_limits<double>::infinity();
  std::array<double, kMaxPlanes> best{};
  for (const Start& start :
       planes == 1 ? std::span<const Start>(one_plane) : joint_starts(options_)) {
    Start trial = start;
    for (double& s : trial)
      s *= rms;
    const double error = alternate(w, h, n, trial.data());
    if (error < best_error) {
      best_error = error;
      best = trial;
    }
  }
  if (planes > 1 && options_.plane_fit == PlaneFit::kTied) {
    const double unit = round_tied_unit(best[0], planes);
    for (int p = 0; p < planes; ++p)
      scales[p] = static_cast<float>(unit * tied_ratios(planes)[p]);
  } else {
    for (int p = 0; p < planes; ++p)
      scales[p] = round_scale(best[static_cast<size_t>(p)]);
  }
}

void GroupFitter::keep_by_threshold(const float* w, int64_t n, double threshold,
                                    int8_t* codes) const {
  for (int64_t i = 0; i < n; ++i)
    codes[i] = std::fabs(w[i]) > threshold ? 1 : 0;
  if (!options_.sparsity.dense()) {
    for (int64_t i = 0; i < n; i += 4) {
      std::array<int, 4> order{0, 1, 2, 3};
      std::stable_sort(order.begin(), order.end(),
                       [&](int a, int b) { return std::fabs(w[i + a]) > std::fabs(w[i + b]); });
      const int kept = codes[i] + codes[i + 1] + codes[i + 2] + codes[i + 3];
      const int count =
          std::clamp(kept, options_.sparsity.min_nonzero, options_.sparsity.max_nonzero);
      for (int k = 0; k < 4; ++k)
        codes[i + order[static_cast<size_t>(k)]] = k < count ? 1 : 0;
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    if (w[i] < 0) codes[i] = static_cast<int8_t>(-codes[i]);
  }
}

void GroupFitter::fit_by_rule(const float* w, int64_t n, double threshold, float* scale,
                              int8_t* codes, float* values) {
  sorted_.resize(static_cast<size_t>(n));
  double sum = 0;
  double signed_sum = 0;
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    sorted_[static_cast<size_t>(i)] = std::fabs(w[i]);
    sum += std::fabs(w[i]);
    signed_sum += w[i];
    squares += static_cast<double>(w[i]) * w[i];
  }
  const double count = static_cast<double>(n);
  double limit = 0;  // weights up to this magnitude become 0
  switch (options_.method) {
    case TernaryMethod::kAbsmean:
      limit = 0.5 * round_scale(sum / count);
      break;
    case TernaryMethod::kFixed: {
      const double mean = signed_sum / count;
      limit = threshold * std::sqrt(std::max(0.0, squares / count - mean * mean));
      break;
    }
    case TernaryMethod::kQuantile: {
      std::sort(sorted_.begin(), sorted_.end());
      const double place = threshold * (count - 1);
      const auto below = static_cast<size_t>(place);
      const size_t above = std::min(below + 1, static_cast<size_t>(n - 1));
      limit = sorted_[below] + (place - static_cast<double>(below)) *
                                   (static_cast<double>(sorted_[above]) - sorted_[below]);
      break;
    }
    case TernaryMethod::kTopk: {
      const auto kept =
          static_cast<int64_t>(std::clamp(std::nearbyint(threshold * count), 1.0, count));
      if (kept < n) {
        std::nth_element(sorted_.begin(), sorted_.begin() + kept, sorted_.end(), std::greater<>());
        limit = sorted_[static_cast<size_t>(kept)];
      }
      break;
    }
    case TernaryMethod::kL1: {
      if (!(sum > 0)) break;
      std::sort(sorted_.begin(), sorted_.end(), std::greater<>());
      std::vector<double> prefix(static_cast<size_t>(n) + 1, 0.0);
      for (size_t i = 0; i < sorted_.size(); ++i)
        prefix[i + 1] = prefix[i] + sorted_[i];
      double best = std::numeric_limits<double>::infinity();
      const double mean = sum / count;
      for (size_t k = 0; k <= sorted_.size(); ++k) {
        // The k largest are kept; the smallest threshold that does this is the next one.
        const double t = k < sorted_.size() ? sorted_[k] : 0.0;
        if (k > 0 && k < sorted_.size() && sorted_[k] == sorted_[k - 1]) continue;
        // Distances to the median cancel in pairs around it: upper half minus lower half.
        const size_t half = k / 2;
        const double kept_error = prefix[half] - (prefix[k] - prefix[k - half]);
        const double penalty = t / mean;
        const double loss =
            (kept_error + prefix[sorted_.size()] - prefix[k]) / sum + threshold * penalty * penalty;
        if (loss < best) {
          best = loss;
          limit = t;
        }
      }
      break;
    }
    case TernaryMethod::kMse:
    case TernaryMethod::kGptq:
      throw InternalError("this method is not a threshold rule");
  }
  keep_by_threshold(w, n, limit, codes);

  double chosen = 0;
  if (options_.method == TernaryMethod::kAbsmean) {
    chosen = sum / count;
  } else {
    sorted_.clear();
    double kept_sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (codes[i] == 0) continue;
      sorted_.push_back(std::fabs(w[i]));
      kept_sum += std::fabs(w[i]);
    }
    const size_t kept = sorted_.size();
    if (kept > 0 && options_.method == TernaryMethod::kL1) {
      std::sort(sorted_.begin(), sorted_.end());
      chosen = 0.5 * (static_cast<double>(sorted_[(kept - 1) / 2]) + sorted_[kept / 2]);
    } else if (kept > 0) {
      chosen = kept_sum / static_cast<double>(kept);
    }
  }
  *scale = round_scale(chosen);
  for (int64_t i = 0; i < n; ++i)
    values[i] = *scale * static_cast<float>(codes[i]);
}

}  // namespace ts
