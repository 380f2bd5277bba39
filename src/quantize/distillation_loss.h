/// The divergence between two models' predictions over one output matrix, and its gradient.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"

namespace ts {

/// Sum over rows of KL(softmax(E t) || softmax(E s)) in nats, for the normed hidden states t of the
/// original and s of the model, [n, d], and the output matrix E [n_vocab, d]. With `gradient`
/// [n, d], which is overwritten: the gradient of that sum with respect to s.
double distillation_loss(std::span<const float> output_matrix, std::span<const float> original,
                         std::span<const float> model, int64_t d, std::span<float> gradient,
                         ThreadPool& pool);

}  // namespace ts
