/// Conversion of models between containers and weight types: a Hugging Face checkpoint directory to
/// GGUF, and GGUF to GGUF. Description and examples: docs/convert.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"

namespace ts {

struct ConvertOptions {
  /// "auto" keeps every tensor's type; otherwise the name of a codec ("f32", "bf16", "pq2_0", ...)
  /// for the weight matrices. Norms, biases and other small tensors stay f32.
  std::string type = "auto";
  bool lossy = false;      ///< allow values to change
  bool overwrite = false;  ///< replace an existing output
  std::string force_pre;   ///< pre-tokenizer name to use instead of the detected one
};

struct ConvertedTensor {
  std::string name;                  ///< in the output
  std::vector<std::string> sources;  ///< tensors it was made of; empty = computed from settings
  std::string source_type;           ///< as the input names it
  std::string type;                  ///< codec name in the output
  uint64_t bytes = 0;
  bool lossless = true;  ///< the output holds exactly the values of the input
};

/// A tensor of the input that has no place in the output.
struct SkippedTensor {
  std::string name, reason;
};

struct ConvertReport {
  std::string architecture;
  uint64_t output_bytes = 0;
  bool lossless = true;
  double bits_per_weight = 0;            ///< tensor bytes * 8 / number of values
  std::vector<ConvertedTensor> tensors;  ///< in file order
  std::vector<SkippedTensor> skipped;    ///< with `tensors`: every input tensor exactly once
  std::vector<std::string> notes;        ///< remarks for people, one line each
};

/// Converts `input` (a checkpoint directory with config.json and safetensors, or a GGUF file) into
/// the GGUF file `output`, which appears complete or not at all. Works on one piece of one tensor
/// at a time: memory does not grow with the model.
/// Errors: InvalidArgument (options, existing output), FormatError (damaged or inconsistent input,
/// non-finite weights), Unsupported (an architecture, setting or type that cannot be converted, or
/// values that `type` cannot hold without `lossy`), ResourceExhausted (disk full), IoError,
/// Cancelled.
ConvertReport convert_model(const std::filesystem::path& input, const std::filesystem::path& output,
                            const ConvertOptions& options, const Progress& progress);

}  // namespace ts
