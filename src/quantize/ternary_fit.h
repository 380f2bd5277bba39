/// Weights -> ternary planes. Pure functions over arrays; they know nothing of models or files.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "quantize/loss_metric.h"
#include "quantize/ternary_matrix.h"
#include "quantize/ternary_options.h"

namespace ts {

/// Fits planes to weights [rows, cols], which are in the basis that is stored (rotated, if the
/// tensor is). `metric` [cols, cols] in the same basis: needed by kGptq and by refine_sweeps > 0,
/// optional weighting for kMse, ignored by the other rules; may be null. `what` names the tensor in
/// errors. The result is the same bits for any number of threads.
///
/// Errors: InvalidArgument (check_options(); sizes that do not fit; a metric of another width; a
/// weight whose scale is beyond binary16), FormatError (a weight that is not finite, with its row
/// and column), Cancelled.
TernaryMatrix fit_ternary(std::span<const float> weights, int64_t rows, int64_t cols,
                          const LossMetric* metric, const TernaryOptions& options, ThreadPool& pool,
                          const CancelToken* cancel = nullptr,
                          std::string_view what = "the weight matrix");

}  // namespace ts
