#include "text/hf_token_list.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace ts {
namespace {

using nlohmann::json;

// Ten times the largest vocabularies; a stray id in a small file must not cost gigabytes.
constexpr int64_t kMaxTokens = int64_t{1} << 22;
constexpr float kAddedScore = -1000.0f;
constexpr float kPaddingScore = -10000.0f;
constexpr float kUnmergedScore = -1e6f;

/// Markers that publishers forgot to declare special.
bool looks_special(std::string_view text) {
  const auto enclosed = [&](std::string_view begin, std::string_view end) {
    return text.size() >= begin.size() + end.size() && text.starts_with(begin) &&
           text.ends_with(end);
  };
  return enclosed("<|", "|>") || enclosed("<\xEF\xBD\x9C", "\xEF\xBD\x9C>") ||
         enclosed("<unused", ">") || text == "<pad>" || text == "<mask>" || text == "<2mass>" ||
         text == "[@BOS@]";
}

int64_t integer_id(const json& value, const std::string& text, std::string_view where) {
  if (!value.is_number_integer()) {
    throw FormatError(fmt::format("{}: the id of token {} is {}, expected an integer", where,
                                  quote_text(text), json_kind(value)));
  }
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{1} << 62) return kMaxTokens;
  return value.get<int64_t>();
}

}  // namespace

HfTokenList::HfTokenList(std::string source, bool sentencepiece)
    : source_(std::move(source)), sentencepiece_(sentencepiece) {}

HfTokenList::Slot& HfTokenList::slot(int64_t id, std::string_view where) {
  if (id < 0 || id >= kMaxTokens) {
    throw FormatError(fmt::format("{}: the token id {} is out of range; ids go from 0 to {}", where,
                                  id, kMaxTokens - 1));
  }
  if (static_cast<size_t>(id) >= slots_.size()) slots_.resize(static_cast<size_t>(id) + 1);
  return slots_[static_cast<size_t>(id)];
}

void HfTokenList::add_vocab(const json& vocab, std::string_view where) {
  if (!vocab.is_object()) {
    throw FormatError(fmt::format("{}: the vocabulary is {}, expected an object of tokens and ids",
                                  where, json_kind(vocab)));
  }
  vocab_index_.reserve(vocab.size());
  for (const auto& [text, value] : vocab.items()) {
    const int64_t id = integer_id(value, text, where);
    Slot& s = slot(id, where);
    if (s.used) {
      throw FormatError(fmt::format("{}: tokens {} and {} have the same id {}", where,
                                    quote_text(s.text), quote_text(text), id));
    }
    s.used = true;
    s.text = text;
    s.type = sentencepiece_ && parse_byte_token(text) ? TokenType::kByte : TokenType::kNormal;
    vocab_index_.try_emplace(text, static_cast<TokenId>(id));
  }
  base_size_ = vocab.size();
  if (base_size_ == 0) {
    throw FormatError(fmt::format("{}: the vocabulary is empty; fetch the file again", where));
  }
}

void HfTokenList::add_pieces(const SentencePieceModel& model) {
  base_size_ = model.pieces.size();
  slots_.reserve(base_size_);
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    Slot s;
    s.text = piece.type == TokenType::kUserDefined ? sentencepiece_to_text(piece.text) : piece.text;
    s.score = piece.score;
    s.type = piece.type;
    // A vocabulary may hold the character itself in the place of a byte.
    if (s.type == TokenType::kByte && !parse_byte_token(s.text)) s.type = TokenType::kNormal;
    s.used = true;
    vocab_index_.try_emplace(piece.text, static_cast<TokenId>(slots_.size()));
    slots_.push_back(std::move(s));
  }
}

void HfTokenList::score_by_merges(const std::vector<std::string>& merges,
                                  std::string_view unknown_token) {
  for (Slot& s : slots_) {
    if (s.type == TokenType::kNormal && s.text == unknown_token) s.type = TokenType::kUnknown;
    if (s.type == TokenType::kNormal || s.type == TokenType::kUserDefined) s.score = kUnmergedScore;
  }
  std::vector<bool> scored(slots_.size(), false);
  std::string text;
  TokenId last = -1;
  size_t scattered = 0;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const size_t space = merges[rank].find(' ', 1);
    text.assign(merges[rank], 0, space);
    if (space != std::string::npos) text.append(merges[rank], space + 1);
    const auto it = vocab_index_.find(text);
    if (it == vocab_index_.end()) continue;
    const auto id = static_cast<size_t>(it->second);
    if (!scored[id]) {
      scored[id] = true;
      if (slots_[id].score == kUnmergedScore) {
        slots_[id].score = static_cast<float>(-static_cast<int64_t>(rank));  // 0, never -0
      }
    } else if (last != it->second) {
      ++scattered;
    }
    last = it->second;
  }
  if (scattered > 0) {
    log_warning(
        fmt::format("{}: {} tokens are built by merges of different rank, which scores "
                    "cannot express; a few texts may be tokenized differently",
                    source_, scattered));
  }
}

void HfTokenList::replace_reserved(Slot& s, int64_t id, const std::string& content,
                                   std::string_view where) {
  const bool reserved = s.type == TokenType::kUnused || s.type == TokenType::kControl ||
                        looks_special(s.text) || s.text.find("reserved") != std::string::npos;
  if (!reserved) {
    throw FormatError(
        fmt::format("{}: the added token {} has the id {}, which the vocabulary gives to {}; an id "
                    "can stand for one token only",
                    where, quote_text(content), id, quote_text(s.text)));
  }
  log_warning(fmt::format("{}: the added token {} takes the place of the reserved token {}", where,
                          quote_text(content), quote_text(s.text)));
  vocab_index_.erase(s.text);
}

bool HfTokenList::add_token(int64_t id, const std::string& content, bool special,
                            std::string_view where) {
  Slot& s = slot(id, where);
  if (s.added) return false;
  const auto known = vocab_index_.find(content);
  if (known != vocab_index_.end() && known->second != id) {
    throw FormatError(
        fmt::format("{}: the added token {} has the id {} but the vocabulary gives it "
                    "{}",
                    where, quote_text(content), id, known->second));
  }
  if (s.used && s.text != content && s.text != sentencepiece_to_text(content)) {
    replace_reserved(s, id, content, where);
  }
  const bool control = special || looks_special(content);
  s.added = true;
  if (!s.used) s.score = kAddedScore;
  s.used = true;
  // The unknown token keeps its type: it is one of the model, even when listed here.
  if (s.type != TokenType::kUnknown || s.text != content) {
    s.type = control ? TokenType::kControl : TokenType::kUserDefined;
  }
  s.text = s.type == TokenType::kUserDefined && sentencepiece_ ? sentencepiece_to_text(content)
                                                               : content;
  added_index_.try_emplace(content, static_cast<TokenId>(id));
  return true;
}

void HfTokenList::add_token_object(const json& token, int64_t id, std::string_view where) {
  const auto content = json_string(token, "content", where);
  if (!content) throw FormatError(fmt::format("{}: added token {} has no \"content\"", where, id));
  if (!add_token(id, *content, json_bool(token, "special", where).value_or(false), where)) return;
  for (const char* key : {"lstrip", "rstrip", "single_word"}) {
    if (!json_bool(token, key, where).value_or(false)) continue;
    throw Unsupported(
        fmt::format("{}: the added token {} has \"{}\" true; GGUF cannot state that tokens take "
                    "blanks or word borders with them, so token ids would differ\nset \"{}\" to "
                    "false if your texts have no blanks beside this token",
                    where, quote_text(*content), key, key));
  }
}

void HfTokenList::add_added_tokens(const HfFiles& files) {
  if (const json* list = json_member(files.tokenizer, "added_tokens")) {
    const std::string where = files.name_of("tokenizer.json");
    if (!list->is_array()) {
      throw FormatError(
          fmt::format("{}: \"added_tokens\" is {}, expected a list", where, json_kind(*list)));
    }
    for (const json& token : *list) {
      const json* id = json_member(token, "id");
      if (id == nullptr) {
        throw FormatError(fmt::format("{}: an entry of \"added_tokens\" has no \"id\"", where));
      }
      add_token_object(token, integer_id(*id, "of the list added_tokens", where), where);
    }
  }
  if (const json* decoder = json_member(files.tokenizer_config, "added_tokens_decoder")) {
    const std::string where = files.name_of("tokenizer_config.json");
    if (!decoder->is_object()) {
      throw FormatError(fmt::format("{}: \"added_tokens_decoder\" is {}, expected an object", where,
                                    json_kind(*decoder)));
    }
    for (const auto& [key, token] : decoder->items()) {
      int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        throw FormatError(fmt::format("{}: {} in \"added_tokens_decoder\" is not a token id", where,
                                      quote_text(key)));
      }
      add_token_object(token, id, where);
    }
  }
  if (files.added_tokens.is_object()) {
    const std::string where = files.name_of("added_tokens.json");
    for (const auto& [content, id] : files.added_tokens.items()) {
      add_token(integer_id(id, content, where), content, false, where);
    }
  }
}

void HfTokenList::pad(int64_t n_vocab) {
  if (n_vocab > kMaxTokens) {
    throw FormatError(fmt::format("{}: a vocabulary of {} tokens is too large", source_, n_vocab));
  }
  if (n_vocab > 0) {
    while (static_cast<int64_t>(slots_.size()) > n_vocab) {
      const Slot& last = slots_.back();
      // Text-only exports of Gemma 3 keep the token of its image part.
      if (last.used && last.text != "<image_soft_token>") {
        throw FormatError(
            fmt::format("{}: the token {} has the id {} but the embedding has only {} "
                        "rows",
                        source_, quote_text(last.text), slots_.size() - 1, n_vocab));
      }
      if (last.used) {
        log_warning(fmt::format("{}: the token {} has no row in the embedding and is left out",
                                source_, quote_text(last.text)));
        added_index_.erase(last.text);
        vocab_index_.erase(last.text);
      }
      slots_.pop_back();
    }
    slots_.resize(static_cast<size_t>(n_vocab));
  }
  for (size_t id = 0; id < slots_.size(); ++id) {
    Slot& s = slots_[id];
    if (s.used) continue;
    s.text = fmt::format("[PAD{}]", id);
    while (find(s.text))
      s.text.insert(s.text.size() - 1, "_");
    s.type = TokenType::kUnused;
    s.score = kPaddingScore;
  }
}

void HfTokenList::warn_of_unmerged() const {
  size_t count = 0, example = 0;
  for (size_t id = 0; id < slots_.size(); ++id) {
    const Slot& s = slots_[id];
    if (s.type != TokenType::kNormal || s.score != kUnmergedScore) continue;
    if (s.text.empty() || decode_utf8(s.text, 0).length == s.text.size())
      continue;  // one character
    if (count++ == 0) example = id;
  }
  if (count > 0) {
    log_warning(
        fmt::format("{}: no merge builds {} tokens, e.g. {}; with scores they can come out where "
                    "nothing else fits",
                    source_, count, quote_text(slots_[example].text)));
  }
}

void HfTokenList::move_to(TokenizerData& data) {
  if (sentencepiece_) warn_of_unmerged();
  for (Slot& s : slots_) {
    data.tokens.push_back(std::move(s.text));
    data.types.push_back(s.type);
    if (sentencepiece_) data.scores.push_back(s.score);
  }
}

std::optional<TokenId> HfTokenList::find(const std::string& text) const {
  for (const auto* index : {&added_index_, &vocab_index_}) {
    const auto it = index->find(text);
    if (it != index->end()) return it->second;
  }
  return std::nullopt;
}

}  // namespace ts
