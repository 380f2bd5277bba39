/// Writes a tokenizer into GGUF metadata (the keys tokenizer.ggml.* and tokenizer.chat_template*).
#pragma once

#include "format/metadata.h"
#include "text/tokenizer.h"

namespace ts {

void write_tokenizer_metadata(const TokenizerData& data, Metadata& metadata);

}  // namespace ts
