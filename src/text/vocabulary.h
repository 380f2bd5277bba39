/// The checked and indexed token list: lookup by text, effective types and texts, stop tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer.h"

namespace ts {

/// Immutable after construction. Not movable: the index points into the token texts.
class Vocabulary {
 public:
  /// Checks the data (FormatError), fills in the special ids that follow from defaults and token
  /// texts, and drops those outside the vocabulary.
  explicit Vocabulary(TokenizerData data);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  const TokenizerData& data() const noexcept { return data_; }
  int32_t size() const noexcept { return static_cast<int32_t>(data_.tokens.size()); }
  bool contains(TokenId id) const noexcept { return id >= 0 && id < size(); }
  /// Throws InvalidArgument for an id outside the vocabulary.
  void check(TokenId id) const;

  /// The lowest id with this text, in the form of the vocabulary; empty texts are not indexed.
  std::optional<TokenId> find(std::string_view text) const;
  const std::string& text(TokenId id) const { return data_.tokens[static_cast<size_t>(id)]; }
  /// The effective type. It differs from the file's where a token that ends generation or begins
  /// a sequence is listed as an ordinary one: such tokens count as control tokens, or users could
  /// write them and readers would see them.
  TokenType type(TokenId id) const { return types_[static_cast<size_t>(id)]; }
  /// True for tokens the model's own algorithm may produce (normal and user-defined ones).
  bool is_text(TokenId id) const {
    return type(id) == TokenType::kNormal || type(id) == TokenType::kUserDefined;
  }
  bool is_end(TokenId id) const { return contains(id) && end_[static_cast<size_t>(id)]; }
  /// The token that stands for text the vocabulary cannot spell: the unknown token, unless it is a
  /// control token, ends or begins a text, or is ordinary text. Plain text must not turn into any
  /// of these; without such a token the bytes are left out, as the reference implementation does.
  std::optional<TokenId> unknown_token() const noexcept { return unknown_; }
  /// Says, once for each vocabulary, that this byte has no token and is left out of the text.
  void warn_of_dropped(uint8_t byte) const;
  bool is_sentencepiece() const noexcept { return data_.model == "llama"; }
  size_t max_token_bytes() const noexcept { return max_token_bytes_; }

 private:
  void check_arrays();
  void build_index();
  void resolve_special_ids();
  void mark_end_tokens();
  void choose_unknown_token(bool stated);

  TokenizerData data_;
  std::vector<TokenType> types_;
  std::vector<bool> end_;
  std::unordered_map<std::string_view, TokenId> index_;
  size_t max_token_bytes_ = 0;
  std::optional<TokenId> unknown_;
  mutable std::atomic<bool> warned_of_dropped_{false};
};

/// True for the texts by which tokens that end a turn or a text are known.
bool is_end_text(std::string_view text) noexcept;

/// U+2581, which stands for a space in SentencePiece vocabularies.
inline constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";
/// `text` with every U+2581 replaced by a space.
std::string sentencepiece_to_text(std::string_view text);
/// The byte of a token text of the form <0xXX>, or nothing.
std::optional<uint8_t> parse_byte_token(std::string_view text) noexcept;
/// The text <0xXX> of a byte.
std::string byte_token_text(uint8_t byte);

}  // namespace ts
