/// Weights of a Hugging Face checkpoint by name, with the packed forms some checkpoints use
/// unpacked: fp8 with block, row or tensor scales, and BitNet's two-bit digits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convert/hf_config.h"
#include "convert/row_source.h"
#include "format/safetensors.h"

namespace ts {

/// quantization_config of a checkpoint.
struct HfQuantization {
  enum class Method { kNone, kFp8, kBitnet };
  Method method = Method::kNone;
  int64_t block_rows = 0, block_cols = 0;  ///< fp8: 0 = scale per row or tensor
  bool bitnet_online = false;              ///< the model rounds its float weights to digits
  bool bitnet_divides = false;             ///< weight = digit / scale instead of digit * scale
  std::vector<std::string> excluded;       ///< parts of names of modules that are stored plainly
};

/// Unsupported, naming the method, when the checkpoint is packed in a way that is not read.
HfQuantization read_hf_quantization(const HfConfig& config);

struct HfWeight {
  std::vector<std::string> sources;  ///< all tensors that went into it, as named in the checkpoint
  std::string stored_type;           ///< "BF16", "F8_E4M3", ...
  std::vector<int64_t> shape;        ///< row-major, after unpacking
  RowSourcePtr rows;                 ///< [shape[0], shape[1]], or one row for a vector
  bool unpacked = false;             ///< computed from digits and scales
};

/// Reads the tensor `entry`, which stands for the weight `name`. `is_matrix`: it is one of the
/// layers' linear weights, to which a quantization applies. A convolution with one input per
/// channel, [channels, 1, taps], becomes the matrix [channels, taps].
HfWeight open_hf_weight(const Safetensors& file, const SafetensorsEntry& entry,
                        const HfQuantization& quantization, bool is_matrix);

/// True for names of scales that open_hf_weight() has no use for (activation and cache scales).
bool is_unused_scale(std::string_view name);

}  // namespace ts
