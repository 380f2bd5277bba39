/// What the values of a stored tensor look like.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "codec/codec.h"
#include "tensor/tensor_view.h"

namespace ts {

struct TensorStatistics {
  uint64_t n_elems = 0;
  uint64_t n_non_finite = 0;  ///< left out of everything below
  double zero_rate = 0;
  double mean = 0, rms = 0, min = 0, max = 0;

  /// Ternary types: "-", "0", "+" and "other" (2-bit codes that mean twice the scale). All others:
  /// 16 equal bins of value / largest magnitude of its group, named by their lower bound.
  std::vector<std::string> symbols;
  std::vector<uint64_t> histogram;  ///< one count per symbol
  double entropy_bits = 0;          ///< of the histogram, per value

  /// The largest magnitude of each group: values that share a scale, else whole rows.
  uint64_t group_elems = 0, n_groups = 0, n_zero_groups = 0;
  double scale_min = 0, scale_median = 0, scale_max = 0;

  double outlier_ratio = 0;  ///< largest magnitude / rms
  double kurtosis = 0;       ///< mean((x - mean)^4) / variance^2; 3 for a normal distribution
};

/// Decodes the whole tensor in pieces. The result does not depend on the number of threads.
/// `tensor.data` must hold the shape's bytes and `codec` must be its type's.
TensorStatistics compute_tensor_statistics(const TensorView& tensor, const Codec& codec,
                                           ThreadPool& pool, const Progress& progress);

}  // namespace ts
