/// Reads the tokenizer from the metadata of a GGUF file (the keys tokenizer.ggml.* and
/// tokenizer.chat_template*).
#pragma once

#include <string>
#include <vector>

#include "format/metadata.h"
#include "text/tokenizer.h"

namespace ts {

/// Special ids outside the vocabulary are dropped, with a warning for each.
/// Errors: FormatError (a key missing, of the wrong type or of the wrong length), Unsupported (a
/// file without tokenizer, or of another model).
TokenizerData read_gguf_tokenizer(const Metadata& metadata);

/// One line for each key tokenizer.ggml.*_token_id that names no token of the file. -1, also in its
/// unsigned forms, is written by some tools for "none" and is no fault.
std::vector<std::string> find_bad_token_ids(const Metadata& metadata);

}  // namespace ts
