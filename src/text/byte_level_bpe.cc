#include "text/byte_level_bpe.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "text/byte_level.h"
#include "text/utf8.h"

namespace ts {

ByteLevelBpe::ByteLevelBpe(const Vocabulary& vocabulary, const PreTokenizer& pre)
    : vocabulary_(vocabulary), pre_(pre), merges_(vocabulary.data().merges.size()) {
  const std::vector<std::string>& merges = vocabulary.data().merges;
  if (merges.size() >= std::numeric_limits<uint32_t>::max()) {
    throw FormatError(fmt::format("the tokenizer has {} merges; too many", merges.size()));
  }
  // Texts that merges mention and the vocabulary lacks get symbols behind the tokens.
  std::unordered_map<std::string, int32_t> others;
  const auto symbol_of = [&](const std::string& text) {
    if (const std::optional<TokenId> id = vocabulary.find(text)) return *id;
    const int64_t next = int64_t{vocabulary.size()} + static_cast<int64_t>(others.size());
    if (next > std::numeric_limits<int32_t>::max()) {
      throw FormatError("the tokenizer has too many tokens and merges");
    }
    return others.try_emplace(text, static_cast<int32_t>(next)).first->second;
  };
  std::string left, right;
  for (unsigned byte = 0; byte < 256; ++byte) {
    left.clear();
    append_utf8(left, byte_to_char(static_cast<uint8_t>(byte)));
    byte_symbol_[byte] = symbol_of(left);
  }
  std::unordered_set<int32_t> merged_parts;  // of those that are no text by themselves
  const auto note_part = [&](int32_t symbol) {
    if (!vocabulary.contains(symbol) || !vocabulary.is_text(symbol)) merged_parts.insert(symbol);
  };
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      throw FormatError(
          fmt::format("{}: merge {} of the tokenizer is not two texts separated by a "
                      "space",
                      vocabulary.data().source, rank));
    }
    left.assign(merge, 0, space);
    right.assign(merge, space + 1);
    const int32_t left_symbol = symbol_of(left), right_symbol = symbol_of(right);
    note_part(left_symbol);
    note_part(right_symbol);
    const int32_t result = symbol_of(left += right);
    merges_.insert(left_symbol, right_symbol, {static_cast<uint32_t>(rank), result});
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const int32_t symbol = byte_symbol_[byte];
    const bool is_text = vocabulary.contains(symbol) && vocabulary.is_text(symbol);
    dropped_[byte] =
        !is_text && !merged_parts.contains(symbol) && !vocabulary.unknown_token().has_value();
  }
}

void ByteLevelBpe::encode(std::string_view text, std::vector<TokenId>& ids) const {
  std::vector<uint32_t> ends;
  pre_tokenize(pre_.kind, text, ends);
  size_t begin = 0;
  for (const uint32_t end : ends) {
    const std::string_view piece = text.substr(begin, end - begin);
    begin = end;
    if (piece.size() > PieceCache::kMaxPieceBytes) {
      encode_piece(piece, ids);
    } else if (!cache_.find(piece, ids)) {
      const size_t before = ids.size();
      encode_piece(piece, ids);
      cache_.insert(piece, ids.data() + before, ids.data() + ids.size());
    }
  }
}

void ByteLevelBpe::encode_piece(std::string_view piece, std::vector<TokenId>& ids) const {
  if (pre_.llama3_family && piece.size() <= vocabulary_.max_token_bytes()) {
    const std::optional<TokenId> id = vocabulary_.find(to_byte_level(piece));
    if (id && vocabulary_.is_text(*id)) {
      ids.push_back(*id);
      return;
    }
  }
  std::string spelled;
  if (std::any_of(piece.begin(), piece.end(),
                  [&](char c) { return dropped_[static_cast<uint8_t>(c)]; })) {
    for (const char c : piece) {
      if (dropped_[static_cast<uint8_t>(c)]) {
        vocabulary_.warn_of_dropped(static_cast<uint8_t>(c));
      } else {
        spelled += c;
      }
    }
    piece = spelled;
  }
  // Symbol i covers bytes [i, next[i]); merged ones keep the place of their first byte.
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  const auto n = static_cast<uint32_t>(piece.size());
  std::vector<int32_t> symbol(n);
  std::vector<uint32_t> next(n), previous(n);
  std::vector<uint32_t> pair_rank(n, kNone);  // rank of the merge of symbol i with the next one
  std::vector<uint64_t> heap_storage;
  heap_storage.reserve(n);
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(
      std::greater<>{}, std::move(heap_storage));
  for (uint32_t i = 0; i < n; ++i) {
    symbol[i] = byte_symbol_[static_cast<uint8_t>(piece[i])];
    next[i] = i + 1;
    previous[i] = i == 0 ? kNone : i - 1;
  }
  const auto look_up = [&](uint32_t i) {
    const uint32_t j = next[i];
    const Merge* merge = j < n ? merges_.find(symbol[i], symbol[j]) : nullptr;
    pair_rank[i] = merge ? merge->rank : kNone;
    if (merge) heap.push(static_cast<uint64_t>(merge->rank) << 32 | i);
  };
  for (uint32_t i = 0; i + 1 < n; ++i)
    look_up(i);
  while (!heap.empty()) {
    const auto rank = static_cast<uint32_t>(heap.top() >> 32);
    const auto i = static_cast<uint32_t>(heap.top());
    heap.pop();
    if (pair_rank[i] != rank) continue;  // the pair is no more
    const uint32_t j = next[i];
    symbol[i] = merges_.find(symbol[i], symbol[j])->result;
    next[i] = next[j];
    if (next[i] < n) previous[next[i]] = i;
    pair_rank[j] = kNone;
    look_up(i);
    if (previous[i] != kNone) look_up(previous[i]);
  }
  for (uint32_t i = 0; i < n; i = next[i]) {
    emit_symbol(symbol[i], piece.substr(i, next[i] - i), ids);
  }
}

void ByteLevelBpe::emit_symbol(int32_t symbol, std::string_view bytes,
                               std::vector<TokenId>& ids) const {
  if (vocabulary_.contains(symbol) && vocabulary_.is_text(symbol)) {
    ids.push_back(symbol);
    return;
  }
  for (const char c : bytes) {
    const int32_t id = byte_symbol_[static_cast<uint8_t>(c)];
    if (vocabulary_.contains(id) && vocabulary_.is_text(id)) {
      ids.push_back(id);
    } else if (const auto unknown = vocabulary_.unknown_token()) {
      ids.push_back(*unknown);
    } else {
      vocabulary_.warn_of_dropped(static_cast<uint8_t>(c));
    }
  }
}

}  // namespace ts
