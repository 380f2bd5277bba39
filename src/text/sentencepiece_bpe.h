/// SentencePiece BPE (model "llama"): characters are merged pair by pair, the pair whose
/// concatenation is the token of highest score first, leftmost among equals. Spaces are U+2581;
/// characters without a token become byte tokens.
///
/// Method: Kudo and Richardson 2018. As in byte_level_bpe.h the pairs wait in a heap, here ordered
/// by (score, position).
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace ts {

/// Immutable and thread-safe.
class SentencePieceBpe {
 public:
  explicit SentencePieceBpe(const Vocabulary& vocabulary);

  /// Appends the ids of `text`, which holds no special tokens. `space_prefix` puts one space in
  /// front of it.
  void encode(std::string_view text, bool space_prefix, std::vector<TokenId>& ids) const;

 private:
  void emit_bytes(std::string_view bytes, std::vector<TokenId>& ids) const;
  /// The token of `text` if merging may build it: not a control, unknown or byte token.
  TokenId mergeable(std::string_view text) const;

  const Vocabulary& vocabulary_;
  std::array<TokenId, 256> byte_token_{};
};

}  // namespace ts
