/// Correction of weights for inputs that already carry the error of earlier quantized layers.
#pragma once

#include <cstdint>
#include <span>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "quantize/second_moment.h"

namespace ts {

/// weights [rows, size] W become W + strength W (C - H) (H + damping mean(diag H) I)^-1, where
/// C = E[x y'] is the moment of the original inputs x with the ones the layer now sees, y, and
/// H = E[y y'] that of y. strength 1 is the least-squares answer to "W y should be W x".
/// Errors: InvalidArgument (sizes, strength not in [0, 1], damping not > 0, no tokens, not positive
/// definite), Cancelled.
void correct_for_input_error(std::span<float> weights, int64_t rows, const CrossMoment& cross,
                             const SecondMoment& seen, double strength, double damping,
                             ThreadPool& pool, const CancelToken* cancel = nullptr);

}  // namespace ts
