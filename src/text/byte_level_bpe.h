/// Byte-level byte pair encoding (model "gpt2"): a piece of text becomes byte symbols, and the
/// adjacent pair of lowest merge rank is merged, leftmost first, until none is left.
///
/// Method: Sennrich et al. 2016 over bytes. Merges wait in a heap ordered by (rank, position);
/// an entry whose pair has changed since is skipped. n symbols cost O(n log n) whatever they are.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/pair_table.h"
#include "text/piece_cache.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace ts {

/// Immutable but for its cache, and thread-safe.
class ByteLevelBpe {
 public:
  /// Reads the merges of the vocabulary's data. Errors: FormatError for one that is not
  /// "left right".
  ByteLevelBpe(const Vocabulary& vocabulary, const PreTokenizer& pre);

  /// Appends the ids of `text`, which holds no special tokens.
  void encode(std::string_view text, std::vector<TokenId>& ids) const;

 private:
  void encode_piece(std::string_view piece, std::vector<TokenId>& ids) const;
  void emit_symbol(int32_t symbol, std::string_view bytes, std::vector<TokenId>& ids) const;

  const Vocabulary& vocabulary_;
  const PreTokenizer& pre_;
  /// Symbols below the vocabulary's size are tokens; the others are parts of merges that are not.
  std::array<int32_t, 256> byte_symbol_{};
  /// Bytes that neither are tokens nor part of a merge and have no unknown token to stand for them:
  /// they are left out before merging.
  std::array<bool, 256> dropped_{};
  PairTable merges_;
  mutable PieceCache cache_;
};

}  // namespace ts
