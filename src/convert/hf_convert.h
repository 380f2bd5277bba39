/// Hugging Face checkpoint directory to GGUF; see convert.h.
#pragma once

#include "convert/convert.h"
#include "convert/model_source.h"

namespace ts {

/// See open_model_source().
ModelSource open_checkpoint_source(const std::filesystem::path& input, const std::string& force_pre,
                                   const Progress& progress);

ConvertReport convert_checkpoint(const std::filesystem::path& input,
                                 const std::filesystem::path& output, const ConvertOptions& options,
                                 const Progress& progress);

}  // namespace ts
