/// Finds the chat templates of a Hugging Face directory.
#pragma once

#include "text/hf_files.h"
#include "text/tokenizer.h"

namespace ts {

/// Sets chat_template and extra_templates. Of several sources of one name chat_template.jinja (and
/// additional_chat_templates/) wins, then tokenizer_config.json, then chat_template.json; a warning
/// says so when they differ.
void read_hf_chat_templates(const HfFiles& files, TokenizerData& data);

}  // namespace ts
