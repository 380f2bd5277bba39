/// Rotations that are part of the weights alone, so that any engine runs the file.
///
/// The residual stream x is turned into R x for good: the gains of the norms go into the matrices
/// behind them (a norm without gains commutes with R), the embedding and the outputs of attn_output
/// and ffn_down become R y, and every matrix that reads the stream becomes W R'. Within attention,
/// values are turned head by head and attn_output turns them back. ffn_down reads a product of two
/// nonlinear branches, which no rotation commutes with: its inputs stay as they are.
/// A tied embedding serves as output matrix with the gains of the last norm in it, so such a model
/// gets an output matrix of its own. Where norms stand between a branch and the stream (gemma3)
/// only the values are turned.
/// Source of the idea: QuaRot (Ashkboos and others, 2024); derivation above.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "convert/model_source.h"

namespace ts {

struct AbsorbedRotation {
  int64_t stream_block = 0;         ///< of R; 0 = the stream is not turned
  int64_t value_block = 0;          ///< of the rotation of values; 0 = none
  std::set<std::string> inputs;     ///< matrices whose inputs are rotated
  bool made_output_matrix = false;  ///< the model had none of its own
};

/// Changes the tensors of `source` in place; values are as before up to rounding in f32, and types
/// of changed tensors become f32. Signs come from `seed`.
/// Errors: Unsupported (other architectures than llama, qwen2, qwen3 and gemma3; widths without a
/// block of 64), FormatError (missing tensors).
AbsorbedRotation absorb_rotation(ModelSource& source, const std::string& input, uint64_t seed);

}  // namespace ts
