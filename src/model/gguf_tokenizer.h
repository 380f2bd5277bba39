/// Reads the tokenizer from the metadata of a GGUF file (the keys tokenizer.ggml.* and
/// tokenizer.chat_template*).
#pragma once

#include "format/metadata.h"
#include "text/tokenizer.h"

namespace ts {

/// Special ids outside the vocabulary are dropped. Errors: FormatError (a key missing, of the wrong
/// type or of the wrong length), Unsupported (a file without tokenizer, or of another model).
TokenizerData read_gguf_tokenizer(const Metadata& metadata);

}  // namespace ts
