/// Vocabularies small enough to follow by hand.
#pragma once

#include <string>
#include <vector>

#include "text/byte_level.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace ts::test {

/// Byte-level BPE: all bytes (ids 0-255, in byte order), "he", "ll", "hell", "hello" by merges,
/// then <|endoftext|> 260, <|im_start|> 261, <|im_end|> 262 (control) and <think> 263.
inline TokenizerData small_bpe() {
  TokenizerData d;
  d.model = "gpt2";
  d.pre = "gpt-2";
  d.source = "small.gguf";
  for (int byte = 0; byte < 256; ++byte) {
    d.tokens.push_back(to_byte_level(std::string(1, static_cast<char>(byte))));
  }
  for (const char* token : {"he", "ll", "hell", "hello"})
    d.tokens.emplace_back(token);
  d.merges = {"h e", "l l", "he ll", "hell o"};
  d.types.assign(d.tokens.size(), TokenType::kNormal);
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    d.tokens.emplace_back(token);
    d.types.push_back(TokenType::kControl);
  }
  d.tokens.emplace_back("<think>");
  d.types.push_back(TokenType::kUserDefined);
  return d;
}

/// SentencePiece: <unk> 0, <s> 1, </s> 2, bytes 3-258, then pieces from 259 on.
inline TokenizerData small_spm() {
  TokenizerData d;
  d.model = "llama";
  d.source = "small.gguf";
  const auto add = [&](const std::string& text, float score, TokenType type) {
    d.tokens.push_back(text);
    d.scores.push_back(score);
    d.types.push_back(type);
  };
  add("<unk>", 0, TokenType::kUnknown);
  add("<s>", 0, TokenType::kControl);
  add("</s>", 0, TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    add(byte_token_text(static_cast<uint8_t>(byte)), 0, TokenType::kByte);
  }
  const std::string space(kSentencePieceSpace);
  for (const char* letter : {"a", "b", "c", "<", ">", "s"})
    add(letter, -10, TokenType::kNormal);
  add(space, -10, TokenType::kNormal);              // 265
  add("ab", -2, TokenType::kNormal);                // 266
  add("bc", -1, TokenType::kNormal);                // 267
  add(space + "a", -3, TokenType::kNormal);         // 268
  add("<s", -1, TokenType::kNormal);                // 269
  add("cc", -1, TokenType::kUnused);                // 270
  add("ccc", -0.5f, TokenType::kNormal);            // 271
  add(space + space, -4, TokenType::kUserDefined);  // 272
  return d;
}

}  // namespace ts::test
