/// Special token ids and flags of a Hugging Face directory.
#pragma once

#include "text/hf_files.h"
#include "text/hf_token_list.h"
#include "text/tokenizer.h"

namespace ts {

/// Sets bos, eos, ... and, as far as the files say, add_bos and add_eos. The texts in
/// tokenizer_config.json count before the numbers in config.json, which are often stale.
/// Ids that are set already stay where the files are silent. Needs data.tokens.
void read_hf_special_ids(const HfFiles& files, const HfTokenList& tokens, TokenizerData& data);

}  // namespace ts
