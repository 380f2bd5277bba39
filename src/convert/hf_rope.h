/// Rotary-embedding settings of a Hugging Face configuration, in any of the three forms they have
/// had: `rope_theta` with `rope_scaling`; one dictionary `rope_parameters`; `rope_parameters` with
/// a dictionary per kind of layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convert/hf_config.h"
#include "format/metadata.h"

namespace ts {

struct HfRope {
  double base = 0;
  std::string type = "default";       ///< "default", "linear", "yarn", "llama3", "dynamic", ...
  nlohmann::json settings;            ///< the dictionary with the keys of that type; may be null
  std::optional<double> rotary_part;  ///< of a head's elements, those that turn, if stated
  std::string where;                  ///< path of the dictionary, for messages, with a final dot
};

/// The settings of layers of kind `layer_kind` ("full_attention" or "sliding_attention").
/// `default_base` counts when no rope_theta is given anywhere.
HfRope read_hf_rope(const HfConfig& config, std::string_view layer_kind, double default_base);

/// Writes rope.freq_base and the scaling keys of `rope` under `architecture`. A type that cannot be
/// converted is Unsupported. `notes` gets what was assumed. Settings of type llama3 write nothing
/// but the base (see llama3_rope_factors). Without `partial_rotary` heads that turn in part are
/// Unsupported.
void write_rope_metadata(const HfConfig& config, const HfRope& rope,
                         const std::string& architecture, Metadata& metadata,
                         std::vector<std::string>& notes, bool partial_rotary = false);

/// The divisors of the rotary frequencies of a `llama3` type, head_dim / 2 of them, for the tensor
/// rope_freqs.weight: 1 for short wavelengths, `factor` for long ones, a smooth step between.
std::vector<float> llama3_rope_factors(const HfConfig& config, const HfRope& rope,
                                       int64_t head_dim);

}  // namespace ts
