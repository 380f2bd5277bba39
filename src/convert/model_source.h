/// A model opened for conversion or quantization: every tensor of the GGUF file to be made as a
/// stream of f32 rows, and the metadata of that file, whatever container the model comes from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "convert/convert.h"
#include "convert/output_tensor.h"
#include "format/gguf.h"

namespace ts {

struct ModelSource {
  std::string architecture;
  /// Of the output, without what depends on the types chosen for it.
  Metadata metadata;
  uint64_t alignment = 32;
  std::vector<OutputTensor> tensors;  ///< in file order; `codec` is not chosen yet
  std::vector<SkippedTensor> skipped;
  std::vector<std::string> notes;        ///< remarks for people, one line each
  std::shared_ptr<const GgufFile> gguf;  ///< null for a checkpoint directory
  std::shared_ptr<const void> keep_alive;
};

enum class SourceKind { kCheckpoint, kGguf };

/// What `input` is, judged by its place in the file system. Errors: IoError (missing), FormatError,
/// Unsupported, InvalidArgument; all say what to give instead.
SourceKind source_kind(const std::filesystem::path& input);

/// Opens a checkpoint directory or a GGUF file. `force_pre`: pre-tokenizer name of a checkpoint's
/// tokenizer instead of the detected one; InvalidArgument for a GGUF file.
/// Errors: as convert_model().
ModelSource open_model_source(const std::filesystem::path& input, const std::string& force_pre,
                              const Progress& progress);

/// InvalidArgument when `output` is a file the source is read from.
void refuse_input_as_output(const ModelSource& source, const std::filesystem::path& output);

}  // namespace ts
