/// A learned affine map of a model: y = W x + b.
///
/// Model code calls run_linears() and sees neither the storage type of W nor how the rows x are
/// prepared for it. Where the file stores W rotated (model/hadamard_contract.h), the rotations are
/// applied here, and where W is a sum of planes they are added: y = R_out^T (sum_p W_p) R_in x + b.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace ts {

/// Immutable after loading.
struct Linear {
  std::string name;  ///< tensor name without ".weight", for messages
  std::shared_ptr<const Weight> weight;
  std::vector<std::shared_ptr<const Weight>> planes;  ///< further ones, of the same shape
  std::vector<float> bias;                            ///< [n_out], or empty
  std::shared_ptr<const Rotation> input, output;      ///< null = none
};

/// The table of token embeddings. run_embedding() is the only look-up of its rows, as_output() the
/// only way to multiply with it; both know whether the rows are stored rotated.
struct Embedding {
  std::string name;  ///< tensor name without ".weight"
  std::shared_ptr<const Weight> table;
  std::shared_ptr<const Rotation> rotation;  ///< of the stored rows; null = none

  /// The same rows as an output matrix (tied embeddings).
  Linear as_output() const { return {name, table, {}, {}, rotation, nullptr}; }
};

/// y[i] = scale * embedding of ids[i]; y [ids.size(), d_model].
void run_embedding(Backend& backend, const Embedding& embedding, std::span<const int32_t> ids,
                   float scale, Mat y);

/// y [n_tokens, n_out] for one Linear.
struct LinearCall {
  const Linear* linear = nullptr;
  Mat y;
};

/// Applies all Linears to the same rows x [n_tokens, n_in]; they share what is derived from x.
/// `scratch`: room for the products of one further plane of each of them, n_tokens * sum(n_out)
/// elements; may be empty when none has any.
void run_linears(Backend& backend, std::initializer_list<LinearCall> calls, Activation& x,
                 Mat scratch = {});

}  // namespace ts
