/// Is a tokenizer fit to be written into a file that this program can use?
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace ts {

/// Builds the tokenizer and parses its chat template, which must work: a file without them would be
/// refused later, far from its cause. Further templates that cannot be used are left out of `data`;
/// that, and bytes that no token spells, get a line in `notes`.
/// Errors: those of Tokenizer::create(); FormatError naming the template's fault.
void check_tokenizer(TokenizerData& data, std::vector<std::string>& notes);

}  // namespace ts
