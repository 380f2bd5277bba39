#include "text/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"

namespace ts {
namespace {

/// Texts of tokens that end a turn, in order of preference for the role "end of turn".
constexpr std::array<std::string_view, 14> kEndTexts = {
    "<|eot_id|>", "<|im_end|>", "<end_of_turn>",   "<|end|>",           "<|endoftext|>",
    "<|return|>", "<|call|>",   "<|end_of_text|>", "<|eom_id|>",        "<EOT>",
    "_<EOT>",     "</s>",       "<eos>",           "<end_of_utterance>"};
/// Separators of fill-in-the-middle prompts; a model that writes one has finished.
constexpr std::array<std::string_view, 3> kFimStopTexts = {"<|fim_pad|>", "<|repo_name|>",
                                                           "<|file_sep|>"};

std::string where(const TokenizerData& data) {
  return data.source.empty() ? std::string("tokenizer") : data.source + ": tokenizer";
}

bool looks_like_a_marker(std::string_view text) {
  return text.size() >= 3 && (text.front() == '<' || text.front() == '[' || text.front() == '_') &&
         (text.back() == '>' || text.back() == ']');
}

}  // namespace

Vocabulary::Vocabulary(TokenizerData data) : data_(std::move(data)) {
  check_arrays();
  const bool unknown_stated = data_.unk.has_value();
  build_index();
  resolve_special_ids();
  mark_end_tokens();
  choose_unknown_token(unknown_stated);
}

void Vocabulary::check_arrays() {
  const size_t n = data_.tokens.size();
  if (n == 0) throw FormatError(fmt::format("{} has no tokens", where(data_)));
  if (n > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    throw FormatError(fmt::format("{} has {} tokens; at most 2^31-1 can be used", where(data_), n));
  }
  if (!data_.types.empty() && data_.types.size() != n) {
    throw FormatError(fmt::format("{} has {} tokens but {} token types; the file is damaged",
                                  where(data_), n, data_.types.size()));
  }
  types_.assign(n, TokenType::kNormal);
  for (size_t i = 0; i < data_.types.size(); ++i) {
    const auto type = static_cast<int32_t>(data_.types[i]);
    if (type < 0 || type > 6) {
      throw FormatError(
          fmt::format("{}: token {} has the type {}; types go from 1 to 6", where(data_), i, type));
    }
    if (type != 0) types_[i] = data_.types[i];  // 0 stands for "not said"
  }
  if (!is_sentencepiece()) return;
  if (data_.scores.size() != n) {
    throw FormatError(
        fmt::format("{} has {} tokens but {} scores; merging by score needs one for "
                    "each token",
                    where(data_), n, data_.scores.size()));
  }
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(data_.scores[i])) {
      throw FormatError(fmt::format("{}: the score of token {} is not a number", where(data_), i));
    }
  }
  for (size_t i = 0; i < n; ++i) {
    if (types_[i] == TokenType::kByte && !parse_byte_token(data_.tokens[i])) {
      throw FormatError(
          fmt::format("{}: token {} is a byte token but its text is not <0xXX>", where(data_), i));
    }
  }
}

void Vocabulary::build_index() {
  index_.reserve(data_.tokens.size());
  size_t duplicates = 0;
  TokenId first = 0, second = 0;
  for (TokenId id = 0; id < size(); ++id) {
    const std::string& token = text(id);
    if (token.size() > max_token_bytes_) max_token_bytes_ = token.size();
    if (token.empty()) continue;
    const auto [it, inserted] = index_.try_emplace(token, id);
    if (!inserted && duplicates++ == 0) {
      first = it->second;
      second = id;
    }
  }
  if (duplicates > 0) {
    log_warning(
        fmt::format("{}: {} token texts occur twice (first: ids {} and {}); the lowest id "
                    "is used for encoding",
                    where(data_), duplicates, first, second));
  }
}

void Vocabulary::resolve_special_ids() {
  const bool spm = is_sentencepiece();
  if (spm && !data_.bos) data_.bos = 1;
  if (spm && !data_.eos) data_.eos = 2;
  if (spm && !data_.unk) data_.unk = 0;
  for (std::optional<TokenId>* id : {&data_.bos, &data_.eos, &data_.eot, &data_.eom, &data_.unk,
                                     &data_.sep, &data_.pad, &data_.mask}) {
    if (*id && !contains(**id)) {
      log_debug(fmt::format("{}: special token id {} is outside the {} tokens and ignored",
                            where(data_), **id, size()));
      id->reset();
    }
  }
  std::erase_if(data_.fim_stop, [&](TokenId id) { return !contains(id); });
  for (size_t i = 0; !data_.eot && i < kEndTexts.size(); ++i) {
    // The last ones end a whole text rather than a turn.
    if (kEndTexts[i] == "<|return|>") break;
    data_.eot = find(kEndTexts[i]);
  }
}

void Vocabulary::mark_end_tokens() {
  end_.assign(data_.tokens.size(), false);
  const auto mark = [&](std::optional<TokenId> id) {
    if (id) end_[static_cast<size_t>(*id)] = true;
  };
  mark(data_.eos);
  mark(data_.eot);
  mark(data_.eom);
  for (const TokenId id : data_.fim_stop)
    mark(id);
  for (const std::string_view text : kEndTexts)
    mark(find(text));
  for (const std::string_view text : kFimStopTexts)
    mark(find(text));

  const auto protect = [&](TokenId id) {
    TokenType& type = types_[static_cast<size_t>(id)];
    if ((type == TokenType::kNormal || type == TokenType::kUserDefined) &&
        looks_like_a_marker(text(id))) {
      type = TokenType::kControl;
    }
  };
  for (TokenId id = 0; id < size(); ++id) {
    if (is_end(id)) protect(id);
  }
  if (data_.bos) protect(*data_.bos);
}

void Vocabulary::choose_unknown_token(bool stated) {
  if (!data_.unk || is_end(*data_.unk) || data_.unk == data_.bos) return;
  const TokenId id = *data_.unk;
  // An id that is a mere default may hit an ordinary piece.
  if (type(id) == TokenType::kUnknown || (is_text(id) && (stated || looks_like_a_marker(text(id)))))
    unknown_ = id;
}

void Vocabulary::warn_of_dropped(uint8_t byte) const {
  if (warned_of_dropped_.exchange(true)) return;
  log_warning(
      fmt::format("{} has no token for the byte 0x{:02X}; bytes without a token are left out of "
                  "the text",
                  where(data_), byte));
}

void Vocabulary::check(TokenId id) const {
  if (!contains(id)) {
    throw InvalidArgument(
        fmt::format("token id {} is outside the vocabulary of {} tokens", id, size()));
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  const auto it = index_.find(text);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

bool is_end_text(std::string_view text) noexcept {
  return std::find(kEndTexts.begin(), kEndTexts.end(), text) != kEndTexts.end();
}

std::string sentencepiece_to_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t next = text.find(kSentencePieceSpace, i);
    out.append(text.substr(i, next - i));
    if (next == std::string_view::npos) break;
    out.push_back(' ');
    i = next + kSentencePieceSpace.size();
  }
  return out;
}

std::optional<uint8_t> parse_byte_token(std::string_view text) noexcept {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  unsigned value = 0;
  for (const char c : text.substr(3, 2)) {
    unsigned digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<unsigned>(c - '0');
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<unsigned>(c - 'A') + 10;
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<unsigned>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

std::string byte_token_text(uint8_t byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace ts
