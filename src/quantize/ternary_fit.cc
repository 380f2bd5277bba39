#include "quantize/ternary_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "quantize/blas.h"
#include "quantize/feedback_sweep.h"
#include "quantize/group_fit.h"
#include "quantize/refine.h"
#include "quantize/row_block.h"

namespace ts {
namespace {

constexpr int kRefineSweeps = 4;  // of kGptq
// No group with a larger weight has a scale that fits; sums of squares and products with a metric
// stay far from overflow below it.
constexpr float kLargestWeight = 1e8F;

bool is_rule(TernaryMethod method) noexcept {
  return method != TernaryMethod::kMse && method != TernaryMethod::kGptq;
}

bool weighs_prefixes(const TernaryOptions& options) noexcept {
  return options.n_planes > 1 && options.plane_fit == PlaneFit::kProgressive &&
         options.sparsity.dense() && options.prefix_weight > 0;
}

void check_weights(std::span<const float> weights, int64_t cols, std::string_view what) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]))
      throw FormatError(fmt::format(
          "{}: the weight in row {}, column {} is {}; the source is damaged or overflowed", what,
          static_cast<int64_t>(i) / cols, static_cast<int64_t>(i) % cols, weights[i]));
    if (std::fabs(weights[i]) > kLargestWeight)
      throw InvalidArgument(fmt::format(
          "{}: the weight in row {}, column {} is {}; scales are binary16 numbers up to 65504",
          what, static_cast<int64_t>(i) / cols, static_cast<int64_t>(i) % cols, weights[i]));
  }
}

TernaryMatrix empty_matrix(int64_t rows, int64_t cols, const TernaryOptions& options) {
  TernaryMatrix matrix{rows, cols, {}};
  const int64_t groups = (cols + options.group - 1) / options.group;
  for (int p = 0; p < options.n_planes; ++p) {
    TernaryPlane plane;
    plane.group = options.group;
    plane.codes.resize(static_cast<size_t>(rows * cols));
    plane.scales.resize(static_cast<size_t>(rows * groups));
    matrix.planes.push_back(std::move(plane));
  }
  return matrix;
}

/// Zero scales for groups of zeros and the reverse.
void tidy(const RowBlock& block) {
  for (int p = 0; p < block.n_planes; ++p) {
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t g = 0; g < block.n_groups(); ++g) {
        int8_t* codes = block.codes.plane[p] + r * block.cols;
        float& scale = block.scales[p][r * block.n_groups() + g];
        const int64_t begin = g * block.group;
        const int64_t end = block.group_end(begin);
        if (scale == 0) std::fill(codes + begin, codes + end, int8_t{0});
        if (std::all_of(codes + begin, codes + end, [](int8_t c) { return c == 0; })) scale = 0;
      }
    }
  }
}

/// One row by a rule; returns the squared error.
double row_by_rule(const RowBlock& block, int64_t row, double threshold, GroupFitter& fitter) {
  double error = 0;
  for (int64_t g = 0; g < block.n_groups(); ++g) {
    const int64_t begin = row * block.cols + g * block.group;
    const int64_t count = block.group_end(g * block.group) - g * block.group;
    fitter.fit_by_rule(block.weights + begin, count, threshold,
                       block.scales[0] + row * block.n_groups() + g, block.codes.plane[0] + begin,
                       block.values + begin);
    for (int64_t i = begin; i < begin + count; ++i) {
      const double d = static_cast<double>(block.values[i]) - block.weights[i];
      error += d * d;
    }
  }
  return error;
}

void fit_rows_by_rule(const RowBlock& block, const TernaryOptions& options, GroupFitter& fitter) {
  const double threshold = options.threshold.value_or(preset_threshold(options.method));
  for (int64_t r = 0; r < block.rows; ++r) {
    if (!options.search_threshold) {
      row_by_rule(block, r, threshold, fitter);
      continue;
    }
    block.check_cancelled();
    double best = std::numeric_limits<double>::infinity();
    double best_share = threshold;
    for (int percent = 1; percent <= 75; ++percent) {
      const double error = row_by_rule(block, r, percent / 100.0, fitter);
      if (error < best) {
        best = error;
        best_share = percent / 100.0;
      }
    }
    row_by_rule(block, r, best_share, fitter);
  }
}

void fit_rows_alone(const RowBlock& block, const float* importance, GroupFitter& fitter) {
  for (int64_t r = 0; r < block.rows; ++r) {
    for (int64_t g = 0; g < block.n_groups(); ++g) {
      const int64_t column = g * block.group;
      const int64_t begin = r * block.cols + column;
      const int64_t count = block.group_end(column) - column;
      const float* h = importance ? importance + column : nullptr;
      float scales[kMaxPlanes];
      fitter.fit_scales(block.weights + begin, h, count, scales);
      block.set_scales(r, g, scales);
      fitter.choose_codes(block.weights + begin, h, count, scales, block.codes.at(begin),
                          block.values + begin);
    }
  }
}

/// All planes at once (or the only one).
TernaryMatrix fit_planes(std::span<const float> weights, int64_t rows, int64_t cols,
                         const LossMetric* metric, const TernaryOptions& options, ThreadPool& pool,
                         const CancelToken* cancel) {
  TernaryMatrix matrix = empty_matrix(rows, cols, options);
  const int sweeps =
      options.refine_sweeps.value_or(options.method == TernaryMethod::kGptq ? kRefineSweeps : 0);
  std::unique_ptr<const FeedbackSweep> sweep;
  if (options.method == TernaryMethod::kGptq)
    sweep = std::make_unique<FeedbackSweep>(*metric, options, pool);
  std::vector<float> importance;
  if (options.method == TernaryMethod::kMse && metric) {
    importance.resize(static_cast<size_t>(cols));
    for (int64_t i = 0; i < cols; ++i)
      importance[static_cast<size_t>(i)] = metric->matrix()[i * cols + i];
  }
  pool.parallel_for(rows, kBlockRows, [&](int64_t begin, int64_t end) {
    GroupFitter fitter(options);
    std::vector<float> values;
    for (int64_t row = begin; row < end; row += kBlockRows) {
      RowBlock block;
      block.rows = std::min(kBlockRows, end - row);
      block.cols = cols;
      block.group = options.group;
      block.n_planes = options.n_planes;
      block.weights = weights.data() + row * cols;
      block.cancel = cancel;
      block.check_cancelled();
      values.resize(static_cast<size_t>(block.rows * cols));
      block.values = values.data();
      for (int p = 0; p < options.n_planes; ++p) {
        TernaryPlane& plane = matrix.planes[static_cast<size_t>(p)];
        block.codes.plane[p] = plane.codes.data() + row * cols;
        block.scales[p] = plane.scales.data() + row * block.n_groups();
      }
      if (sweep) {
        sweep->run(block);
      } else if (is_rule(options.method)) {
        fit_rows_by_rule(block, options, fitter);
      } else {
        fit_rows_alone(block, importance.empty() ? nullptr : importance.data(), fitter);
      }
      if (sweeps > 0) refine(block, *metric, options, sweeps);
      if (sweeps > 0 && weighs_prefixes(options))
        balance_prefixes(block, *metric, options.prefix_weight, sweeps);
      tidy(block);
    }
  });
  return matrix;
}

/// Each plane on what the planes before it left over.
TernaryMatrix fit_one_by_one(std::span<const float> weights, int64_t rows, int64_t cols,
                             const LossMetric* metric, const TernaryOptions& options,
                             ThreadPool& pool, const CancelToken* cancel) {
  TernaryOptions single = options;
  single.n_planes = 1;
  std::vector<float> rest(weights.begin(), weights.end());
  std::vector<float> fitted(rest.size());
  TernaryMatrix matrix{rows, cols, {}};
  for (int p = 0; p < options.n_planes; ++p) {
    TernaryMatrix plane = fit_planes(rest, rows, cols, metric, single, pool, cancel);
    dequantize(plane, fitted);
    for (size_t i = 0; i < rest.size(); ++i)
      rest[i] -= fitted[i];
    matrix.planes.push_back(std::move(plane.planes[0]));
  }
  return matrix;
}

}  // namespace

TernaryMatrix fit_ternary(std::span<const float> weights, int64_t rows, int64_t cols,
                          const LossMetric* metric, const TernaryOptions& options, ThreadPool& pool,
                          const CancelToken* cancel, std::string_view what) {
  check_options(options, rows, cols, metric != nullptr);
  if (static_cast<int64_t>(weights.size()) != rows * cols)
    throw InvalidArgument(
        fmt::format("{}: {} weights are not {} rows of {}", what, weights.size(), rows, cols));
  if (metric && metric->size() != cols)
    throw InvalidArgument(fmt::format("{}: rows of {} weights, but statistics of {} inputs", what,
                                      cols, metric->size()));
  check_weights(weights, cols, what);
  blas::use_one_thread();
  const bool one_by_one = is_rule(options.method) || options.plane_fit == PlaneFit::kGreedy;
  try {
    return one_by_one && options.n_planes > 1
               ? fit_one_by_one(weights, rows, cols, metric, options, pool, cancel)
               : fit_planes(weights, rows, cols, metric, options, pool, cancel);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", what, error.what()));
  }
}

}  // namespace ts
