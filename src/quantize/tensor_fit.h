/// One matrix on its way from the source to packed ternary planes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "quantize/loss_metric.h"
#include "quantize/plan.h"

namespace ts {

struct FittedTensor {
  std::vector<std::vector<std::byte>> planes;  ///< packed rows of each
  double sqnr_db = 0, zero_rate = 0, entropy_bits = 0;
  double kurtosis = 0, kurtosis_source = 0;
  /// Energy of the change of the outputs on the calibration texts / energy of the outputs; negative
  /// = not measured. Set by who has the texts.
  double output_error = -1;
};

/// Sees rows [first, first + count) of the matrix as it now is, in the basis of the source:
/// values [count, n_cols].
using EffectiveRows =
    std::function<void(int64_t first, int64_t count, std::span<const float> values)>;

/// Changes rows [n_rows, n_cols] of the matrix, in the basis of the source, before they are fitted.
using ChangeRows = std::function<void(std::span<float> rows, int64_t n_rows)>;

/// Reads, rotates, fits and packs `planned` (which must be one to fit), a piece of its rows at a
/// time. `metric` in the rotated basis; may be null where the method allows it. `effective` and
/// `change` may be empty. Errors: as fit_ternary(); messages name `input` and the tensor.
FittedTensor fit_tensor(const PlannedTensor& planned, const std::string& input,
                        const LossMetric* metric, ThreadPool& pool, const CancelToken* cancel,
                        const EffectiveRows& effective = {}, const ChangeRows& change = {});

}  // namespace ts
