/// GGUF to GGUF with other weight types; see convert.h.
#pragma once

#include "convert/convert.h"
#include "convert/model_source.h"

namespace ts {

/// See open_model_source().
ModelSource open_gguf_source(const std::filesystem::path& input, const Progress& progress);

/// Metadata is kept, except for general.file_type and the keys of split files.
ConvertReport convert_gguf(const std::filesystem::path& input, const std::filesystem::path& output,
                           const ConvertOptions& options, const Progress& progress);

}  // namespace ts
