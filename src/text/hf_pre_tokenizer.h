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
  std::string pre;            ///< name of the pre-tokenizer; empty = not recognised
  std::string unknown_step;   ///< what was not recognised, for the message
};

/// Looks at "normalizer" and "pre_tokenizer" of a tokenizer.json. FormatError for wrong types.
HfPipeline read_hf_pipeline(const nlohmann::json& tokenizer, std::string_view where);

/// The name for one of the published patterns, or empty.
std::string pre_tokenizer_of_pattern(std::string_view regex);

}  // namespace ts
