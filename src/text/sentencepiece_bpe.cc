#include "text/sentencepiece_bpe.h"

#include <bit>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "text/utf8.h"

namespace ts {
namespace {

/// Maps scores to integers so that a higher score gives a smaller integer.
uint32_t descending_key(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score == 0 ? 0.0f : score);  // -0 equals 0
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

SentencePieceBpe::SentencePieceBpe(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  byte_token_.fill(-1);
  for (TokenId id = vocabulary.size() - 1; id >= 0; --id) {
    if (vocabulary.type(id) != TokenType::kByte) continue;
    // The vocabulary has checked the text of its byte tokens.
    byte_token_[parse_byte_token(vocabulary.text(id)).value()] = id;
  }
}

TokenId SentencePieceBpe::mergeable(std::string_view text) const {
  if (text.size() > vocabulary_.max_token_bytes()) return -1;
  const std::optional<TokenId> id = vocabulary_.find(text);
  // Unused tokens may be a step on the way to longer ones; they are taken apart at the end.
  return id && (vocabulary_.is_text(*id) || vocabulary_.type(*id) == TokenType::kUnused) ? *id : -1;
}

void SentencePieceBpe::encode(std::string_view raw, bool space_prefix,
                              std::vector<TokenId>& ids) const {
  if (raw.empty()) return;
  std::string text;
  text.reserve(raw.size() + raw.size() / 2 + 4);
  if (space_prefix) text.append(kSentencePieceSpace);
  for (const char c : raw) {
    if (c == ' ') {
      text.append(kSentencePieceSpace);
    } else {
      text.push_back(c);
    }
  }

  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  if (text.size() >= kNone) throw InvalidArgument("the text is too long to tokenize at once");
  // Symbol i covers bytes [begin[i], begin[next[i]]); merged ones keep the place of their first.
  std::vector<uint32_t> begin;
  begin.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    begin.push_back(static_cast<uint32_t>(at));
    const Utf8Char c = decode_utf8(text, at);
    at += c.valid ? c.length : 1;
  }
  const auto n = static_cast<uint32_t>(begin.size());
  begin.push_back(static_cast<uint32_t>(text.size()));
  std::vector<uint32_t> next(n), previous(n);
  std::vector<TokenId> pair_token(n, -1);  // what symbol i and the next one would become
  const auto part = [&](uint32_t from, uint32_t to) {
    return std::string_view(text).substr(begin[from], begin[to] - begin[from]);
  };
  const auto key_of = [&](TokenId id) {
    return descending_key(vocabulary_.data().scores[static_cast<size_t>(id)]);
  };
  std::vector<uint64_t> heap_storage;
  heap_storage.reserve(n);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(
      std::greater<>{}, std::move(heap_storage));
  const auto look_up = [&](uint32_t i) {
    const TokenId id = next[i] < n ? mergeable(part(i, next[next[i]])) : -1;
    pair_token[i] = id;
    if (id >= 0) heap.push(static_cast<uint64_t>(key_of(id)) << 32 | i);
  };
  for (uint32_t i = 0; i < n; ++i) {
    next[i] = i + 1;
    previous[i] = i == 0 ? kNone : i - 1;
  }
  for (uint32_t i = 0; i < n; ++i)
    look_up(i);
  std::unordered_map<std::string_view, uint32_t> halves;  // unused tokens: bytes of the left half
  while (!heap.empty()) {
    const auto key = static_cast<uint32_t>(heap.top() >> 32);
    const auto i = static_cast<uint32_t>(heap.top());
    heap.pop();
    const TokenId id = pair_token[i];
    if (id < 0 || key_of(id) != key) continue;  // the pair is no more
    const uint32_t j = next[i];
    if (vocabulary_.type(id) == TokenType::kUnused) {
      halves.try_emplace(part(i, next[j]), begin[j] - begin[i]);
    }
    next[i] = next[j];
    if (next[i] < n) previous[next[i]] = i;
    pair_token[j] = -1;
    look_up(i);
    if (previous[i] != kNone) look_up(previous[i]);
  }

  std::vector<std::string_view> stack;
  for (uint32_t i = 0; i < n; i = next[i]) {
    stack.push_back(part(i, next[i]));
    while (!stack.empty()) {
      const std::string_view piece = stack.back();
      stack.pop_back();
      const TokenId id = mergeable(piece);
      if (id >= 0 && vocabulary_.is_text(id)) {
        ids.push_back(id);
      } else if (const auto half = halves.find(piece); half != halves.end()) {
        stack.push_back(piece.substr(half->second));
        stack.push_back(piece.substr(0, half->second));
      } else {
        emit_bytes(piece, ids);
      }
    }
  }
}

void SentencePieceBpe::emit_bytes(std::string_view bytes, std::vector<TokenId>& ids) const {
  bool complete = true;
  for (const char c : bytes)
    complete &= byte_token_[static_cast<uint8_t>(c)] >= 0;
  if (complete) {
    for (const char c : bytes)
      ids.push_back(byte_token_[static_cast<uint8_t>(c)]);
  } else if (const auto unknown = vocabulary_.unknown_token()) {
    ids.push_back(*unknown);
  } else {
    for (const char c : bytes) {
      const TokenId id = byte_token_[static_cast<uint8_t>(c)];
      if (id < 0) vocabulary_.warn_of_dropped(static_cast<uint8_t>(c));
    }
  }
}

}  // namespace ts
