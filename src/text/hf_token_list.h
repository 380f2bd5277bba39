/// Collects the tokens of a Hugging Face directory: base vocabulary, added tokens, padding.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/hf_files.h"
#include "text/sentencepiece_model.h"
#include "text/tokenizer.h"

namespace ts {

class HfTokenList {
 public:
  /// `sentencepiece`: tokens have scores, user-defined texts hold spaces in place of U+2581, and
  /// <0xXX> is a byte.
  HfTokenList(std::string source, bool sentencepiece);

  /// An object of token texts and ids. FormatError for ids that are no integers, negative, very
  /// large or used twice.
  void add_vocab(const nlohmann::json& vocab, std::string_view where);
  void add_pieces(const SentencePieceModel& model);
  /// Gives tokens that `merges` build the scores that make merging by score equal to merging by
  /// rank: minus the index of the first merge that builds them.
  void score_by_merges(const std::vector<std::string>& merges, std::string_view unknown_token);

  /// The tokens users of the model added, from tokenizer.json's list, tokenizer_config.json's
  /// added_tokens_decoder and added_tokens.json; for one id the first source counts. FormatError
  /// when an id or a text belongs to another token, Unsupported for tokens that take blanks or word
  /// borders with them.
  void add_added_tokens(const HfFiles& files);

  /// Fills ids without a token and, up to `n_vocab` (0 = as they are), the end of the list.
  /// FormatError when a token's id lies beyond it.
  void pad(int64_t n_vocab);

  /// Moves tokens, types and scores to `data`; find() and has() stay usable.
  void move_to(TokenizerData& data);

  size_t base_size() const noexcept { return base_size_; }
  /// Looks among the added tokens, then in the vocabulary.
  std::optional<TokenId> find(const std::string& text) const;
  bool has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < slots_.size(); }

 private:
  struct Slot {
    std::string text;
    float score = 0;
    TokenType type = TokenType::kUnused;
    bool used = false, added = false;
  };
  Slot& slot(int64_t id, std::string_view where);
  /// False when an earlier source has given this id a token.
  bool add_token(int64_t id, const std::string& content, bool special, std::string_view where);
  void warn_of_unmerged() const;
  void replace_reserved(Slot& slot, int64_t id, const std::string& content, std::string_view where);
  void add_token_object(const nlohmann::json& token, int64_t id, std::string_view where);

  std::string source_;
  bool sentencepiece_;
  std::vector<Slot> slots_;
  std::unordered_map<std::string, TokenId> vocab_index_, added_index_;
  size_t base_size_ = 0;
};

}  // namespace ts
