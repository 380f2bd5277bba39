/// Recognises, in a tokenizer.json, the pre-tokenizer that this library knows by name.
#pragma once

#include <string>

#include "text/hf_files.h"

namespace ts {

struct HfPipeline {
  bool byte_level = false;    ///< a ByteLevel step: byte-level BPE
  bool metaspace = false;     ///< spaces become U+2581 (normalizer or Metaspace step)
  bool prefix_space = false;  ///< one is put in front of the text
  bool nfc = false;           ///< text is brought to normal form C first
  /// The ByteLevel step puts a space in front of the text (or of every piece).
  bool byte_prefix_space = false;
  bool changes_spaces = false;  ///< a normalizer replaces spaces or puts one in front
  /// Metaspace with "first": no space in front of what follows a special token.
  bool prefix_first_only = false;
  std::string pre;                 ///< name of the pre-tokenizer; empty = not recognised
  std::string unknown_step;        ///< what was not recognised, for the message
  std::string unknown_normalizer;  ///< a step that changes the text in a way not known here
};

/// Looks at "normalizer" and "pre_tokenizer" of a tokenizer.json. FormatError for wrong types.
HfPipeline read_hf_pipeline(const nlohmann::json& tokenizer, std::string_view where);

/// The name for one of the published patterns, or empty.
std::string pre_tokenizer_of_pattern(std::string_view regex);

}  // namespace ts
