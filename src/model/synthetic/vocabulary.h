/// A made-up tokenizer of a published one's size: byte-level byte pair encoding that encodes and
/// decodes every text, though into other tokens than the published one does.
#pragma once

#include "format/metadata.h"
#include "model/synthetic/shapes.h"

namespace ts {

/// Adds the tokenizer.* keys. Tokens are the 256 bytes, then the shortest strings of lower-case
/// letters (with and without a blank in front), each the merge of a shorter one and a letter.
void add_synthetic_tokenizer(const SyntheticVocabulary& vocabulary, Metadata& metadata);

}  // namespace ts
