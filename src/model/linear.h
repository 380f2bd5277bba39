/// A learned affine map of a model: y = W x + b.
///
/// Model code calls run_linears() and sees neither the storage type of W nor how the rows x are
/// prepared for it. This is the place where an input rotation and further weight planes belong:
/// y = sum_p W_p R x + b.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ts {

/// Immutable after loading.
struct Linear {
  std::string name;  ///< tensor name without ".weight", for messages
  std::shared_ptr<const Weight> weight;
  std::vector<float> bias;  ///< [n_out], or empty
};

/// y [n_tokens, n_out] for one Linear.
struct LinearCall {
  const Linear* linear = nullptr;
  Mat y;
};

/// Applies all Linears to the same rows x [n_tokens, n_in]; they share what is derived from x.
void run_linears(Backend& backend, std::initializer_list<LinearCall> calls, Activation& x);

}  // namespace ts
