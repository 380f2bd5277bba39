/// Hugging Face checkpoint directory to GGUF; see convert.h.
#pragma once

#include "convert/convert.h"

namespace ts {

ConvertReport convert_checkpoint(const std::filesystem::path& input,
                                 const std::filesystem::path& output, const ConvertOptions& options,
                                 const Progress& progress);

}  // namespace ts
