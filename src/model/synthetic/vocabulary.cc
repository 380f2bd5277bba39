#include "model/synthetic/vocabulary.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace ts {
namespace {

/// ChatML: turns between markers, and the beginning of an answer.
constexpr const char* kChatTemplate =
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

struct MergedTokens {
  std::vector<std::string> tokens, merges;
};

/// The first `count` strings, shortest first, that letters make behind a blank or a letter.
MergedTokens merged_tokens(int64_t count) {
  MergedTokens made;
  std::string blank;
  append_utf8(blank, byte_to_char(' '));
  std::vector<std::string> shorter = {blank};
  for (char c = 'a'; c <= 'z'; ++c)
    shorter.emplace_back(1, c);
  while (static_cast<int64_t>(made.tokens.size()) < count) {
    std::vector<std::string> longer;
    for (const std::string& begin : shorter) {
      for (char c = 'a'; c <= 'z'; ++c) {
        if (static_cast<int64_t>(made.tokens.size()) == count) return made;
        longer.push_back(begin + c);
        made.tokens.push_back(longer.back());
        made.merges.push_back(begin + ' ' + c);
      }
    }
    shorter = std::move(longer);
  }
  return made;
}

/// Markers in <|...|> steer the model; others, such as <think>, are text that it writes.
TokenType added_type(std::string_view text) {
  return text.empty() || text.starts_with("<|") ? TokenType::kControl : TokenType::kUserDefined;
}

}  // namespace

void add_synthetic_tokenizer(const SyntheticVocabulary& vocabulary, Metadata& metadata) {
  const int64_t n_unmerged = vocabulary.n_bpe - 256 - vocabulary.n_merges;
  const int64_t n_added = static_cast<int64_t>(vocabulary.added.size());
  if (n_unmerged < 0 || vocabulary.n_bpe + n_added > vocabulary.n_tokens)
    throw InternalError("the parts of a synthetic vocabulary are more than the whole");

  std::vector<std::string> tokens;
  tokens.reserve(static_cast<size_t>(vocabulary.n_tokens));
  for (unsigned byte = 0; byte < 256; ++byte)
    append_utf8(tokens.emplace_back(), byte_to_char(static_cast<uint8_t>(byte)));
  MergedTokens merged = merged_tokens(vocabulary.n_merges);
  for (std::string& token : merged.tokens)
    tokens.push_back(std::move(token));
  for (int64_t i = 0; i < n_unmerged; ++i)
    tokens.push_back(fmt::format("#{:04}", i));  // tokens that no merge reaches exist in real files

  std::vector<int64_t> types(tokens.size(), static_cast<int64_t>(TokenType::kNormal));
  for (int64_t i = 0; i < n_added; ++i) {
    const std::string_view text = vocabulary.added[static_cast<size_t>(i)];
    types.push_back(static_cast<int64_t>(added_type(text)));
    tokens.push_back(text.empty() ? fmt::format("<|added_{}|>", i) : std::string(text));
  }
  while (static_cast<int64_t>(tokens.size()) < vocabulary.n_tokens) {
    tokens.push_back(fmt::format("<|unused_{}|>", tokens.size()));
    types.push_back(static_cast<int64_t>(TokenType::kUnused));
  }

  metadata.set("tokenizer.ggml.model", MetadataValue::string("gpt2"));
  metadata.set("tokenizer.ggml.pre", MetadataValue::string(std::string(vocabulary.pre)));
  for (size_t i = 0; i < vocabulary.added.size(); ++i) {
    const auto id = static_cast<uint32_t>(vocabulary.n_bpe) + static_cast<uint32_t>(i);
    if (vocabulary.added[i] == "<|im_end|>")
      metadata.set("tokenizer.ggml.eos_token_id", MetadataValue::u32(id));
    if (vocabulary.added[i] == "<|endoftext|>")
      metadata.set("tokenizer.ggml.padding_token_id", MetadataValue::u32(id));
  }
  metadata.set("tokenizer.ggml.add_bos_token", MetadataValue::boolean(false));
  metadata.set("tokenizer.chat_template", MetadataValue::string(kChatTemplate));
  metadata.set("tokenizer.ggml.tokens", MetadataValue::strings(std::move(tokens)));
  metadata.set("tokenizer.ggml.token_type", MetadataValue::i32_array(std::move(types)));
  metadata.set("tokenizer.ggml.merges", MetadataValue::strings(std::move(merged.merges)));
}

}  // namespace ts
