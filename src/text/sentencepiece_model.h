/// Reads SentencePiece's tokenizer.model (a protocol buffer, message ModelProto), only the fields
/// that matter here. Layout: https://github.com/google/sentencepiece, sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace ts {

struct SentencePieceModel {
  enum Algorithm : uint64_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    TokenType type = TokenType::kNormal;
  };
  std::vector<Piece> pieces;  ///< index = id
  uint64_t algorithm = kUnigram;
  bool byte_fallback = false;
  std::optional<int32_t> unk, bos, eos, pad;
  bool add_dummy_prefix = true;
};

/// `source` opens the messages. FormatError for damage; unknown fields are skipped.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view source);

}  // namespace ts
