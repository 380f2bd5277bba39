/// Pre-tokenizers of byte-level BPE: they cut text into the pieces inside which merges happen.
///
/// The patterns in use are published as regular expressions. They are few, need no backtracking
/// beyond the end of one run, and general regular expression engines recurse or keep state per
/// character of a run; so they are written out here as scanners over the classes of the characters
/// (utf8proc's general categories; white space is Unicode's White_Space property). Time is linear
/// and the stack constant whatever the text. A byte that is not UTF-8 counts as a symbol.
///
/// With C = 's 't 're 've 'm 'll 'd in either case, the alternatives, first match wins:
///   qwen2   C | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+
///           | \s+(?!\S) | \s+            (the fourth begins with an optional space)
///   qwen35  as qwen2, with marks \p{M} counted as letters
///   llama3  as qwen2, with up to three digits \p{N}{1,3}
///   gpt-2   lower-case C | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
///   smollm  every \p{N} alone; gpt-2 in the parts between
///   default runs of [\p{P}$+<=>^~|]; in every part gpt-2, then \p{N}+, then three ASCII digits
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ts {

enum class PreTokenizerKind { kGpt2, kSmollm, kQwen2, kQwen35, kLlama3, kDefault };

struct PreTokenizer {
  std::string_view name;  ///< as in tokenizer.ggml.pre
  PreTokenizerKind kind;
  /// A piece that is a token as a whole is emitted without merging, and BOS is added by default.
  bool llama3_family;
};

/// The entry of a name or alias, or null.
const PreTokenizer* find_pre_tokenizer(std::string_view name) noexcept;
/// All names, comma separated, for messages.
std::string known_pre_tokenizers();

/// Replaces `ends` by the end offsets of the pieces of `text`, in order; the last is text.size().
/// Pieces are never empty. `text` holds less than 2^32 bytes.
void pre_tokenize(PreTokenizerKind kind, std::string_view text, std::vector<uint32_t>& ends);

}  // namespace ts
