/// Assigns every tensor of a checkpoint its place in the GGUF file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/convert.h"
#include "convert/hf_config.h"
#include "convert/hf_family.h"
#include "convert/hf_weights.h"
#include "convert/output_tensor.h"
#include "format/safetensors.h"

namespace ts {

/// The name without the prefixes that exports differ in: "model.layers.0.mlp.up_proj.weight",
/// "lm_head.weight", ...
std::string plain_tensor_name(std::string_view name);

/// Why a tensor is left out without being looked at (vision towers, buffers); empty when it is not.
std::string_view skip_reason(std::string_view plain_name);

struct HfTensors {
  std::vector<OutputTensor> tensors;  ///< in output order, types not chosen yet
  std::vector<SkippedTensor> skipped;
};

/// Maps all tensors by the family's rules and checks their shapes. `sizes.n_vocab` is set from the
/// embedding. Throws FormatError for tensors that are missing, misshapen or fit no rule (named).
HfTensors map_hf_tensors(const Safetensors& file, const HfConfig& config, const HfFamily& family,
                         const HfQuantization& quantization, HfSizes& sizes,
                         std::vector<std::string>& notes);

}  // namespace ts
