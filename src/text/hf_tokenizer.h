/// Reads tokenizer data from a Hugging Face directory, offline: tokenizer.json,
/// tokenizer_config.json, generation_config.json, config.json, chat templates, SentencePiece
/// tokenizer.model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "text/tokenizer.h"

namespace ts {

struct HfTokenizerOptions {
  std::string architecture =
      {};               ///< architectures[0] of config.json; resolves ambiguous pre-tokenizers
  int64_t n_vocab = 0;  ///< rows of the embedding; the token list is padded to it. 0 = unknown
  std::string force_pre = {};  ///< pre-tokenizer name to use instead of the detected one
};

struct HfFiles;  // text/hf_files.h

/// Errors: IoError, FormatError (damaged or missing files), Unsupported (another kind of tokenizer,
/// by name; a pre-tokenizer that is not recognised).
TokenizerData read_hf_tokenizer(const std::filesystem::path& directory,
                                const HfTokenizerOptions& options);
/// The same from files already read.
TokenizerData build_hf_tokenizer(const HfFiles& files, const HfTokenizerOptions& options);

}  // namespace ts
