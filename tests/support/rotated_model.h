/// Tiny models stored rotated, and ordinary models that compute the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "support/tiny_model.h"

namespace ts::test {

struct RotationChoice {
  int64_t block = 128;
  bool explicit_signs = true;
  bool embedding = true;  ///< token_embd.weight is stored rotated, too
  bool head = true;       ///< output.weight, where the model has one
  uint64_t seed = 7;      ///< of the signs
  /// qwen35: ssm_out was rotated over grouped heads (the rows the layer makes are tiled).
  bool grouped = true;
};

/// What an implementation might get wrong; unrotated_twin() then makes the model such an
/// implementation would compute.
enum class Mistake {
  kNone,
  kSignsLast,
  kNoInverseOfEmbedding,
  kHeadNotRotated,
  kHeadsTiled,
  kNothingRotated
};

/// The signs of every width of the model's matrices; empty when there are none.
std::map<int64_t, std::vector<int8_t>> rotation_signs(const TinyModel& model,
                                                      const RotationChoice& choice);
/// Adds the prism.hadamard.* keys that declare the model's matrices, as they are, to be stored
/// rotated.
TinyModel stored_rotated(TinyModel model, const RotationChoice& choice);
/// The f32 model without keys that computes what the file of stored_rotated() stands for: every
/// listed matrix is decoded from its type and rotated back in double precision.
TinyModel unrotated_twin(TinyModel model, const RotationChoice& choice,
                         Mistake mistake = Mistake::kNone);

}  // namespace ts::test
