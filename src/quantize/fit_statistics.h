/// What a report says about weights and about their ternary form.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "quantize/ternary_matrix.h"

namespace ts {

struct WeightStatistics {
  double mean = 0, rms = 0;
  double max_abs = 0, mean_abs = 0;
  double kurtosis = 0;       ///< mean((w - mean)^4) / variance^2; 3 for a normal distribution
  double max_over_mean = 0;  ///< max |w| / mean |w|
};
/// All 0 for no weights or nothing but zeros. Weights must be finite.
WeightStatistics weight_statistics(std::span<const float> weights);

struct PlaneStatistics {
  double zero_rate = 0;
  double entropy_bits = 0;  ///< of its codes, per weight
};

struct FitStatistics {
  double relative_error = 0;      ///< sum (w^ - w)^2 / sum w^2, all planes
  double sqnr_db = 0;             ///< -10 log10 of it; infinite when exact
  double joint_entropy_bits = 0;  ///< of the codes of all planes together, per weight
  std::vector<PlaneStatistics> planes;
};
/// weights [matrix.rows, matrix.cols]: what was fitted, in the same basis.
FitStatistics fit_statistics(std::span<const float> weights, const TernaryMatrix& matrix);

/// Entropy in bits of a histogram.
double entropy_bits(std::span<const uint64_t> counts) noexcept;

}  // namespace ts
