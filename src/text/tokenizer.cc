#include "text/tokenizer.h"

#include <limits>
#include <variant>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "text/byte_level.h"
#include "text/byte_level_bpe.h"
#include "text/pre_tokenizer.h"
#include "text/sentencepiece_bpe.h"
#include "text/special_tokens.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace ts {
namespace {

std::vector<SpecialTokens::Candidate> special_candidates(const Vocabulary& vocabulary) {
  std::vector<SpecialTokens::Candidate> out;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    if (type == TokenType::kControl || type == TokenType::kUnknown) {
      out.push_back({vocabulary.text(id), id, false});
    } else if (type == TokenType::kUserDefined) {
      out.push_back({vocabulary.is_sentencepiece() ? sentencepiece_to_text(vocabulary.text(id))
                                                   : vocabulary.text(id),
                     id, true});
    }
  }
  return out;
}

const PreTokenizer& choose_pre_tokenizer(const TokenizerData& data, const std::string& force_pre) {
  const std::string& name = force_pre.empty() ? data.pre : force_pre;
  const PreTokenizer* pre = find_pre_tokenizer(name);
  const std::string source = data.source.empty() ? "the model" : data.source;
  if (pre == nullptr) {
    const std::string known = known_pre_tokenizers();
    if (!force_pre.empty()) {
      throw InvalidArgument(fmt::format("--force-pre: no pre-tokenizer is called {}; known: {}",
                                        quote_text(force_pre), known));
    }
    const std::string found =
        name.empty() ? std::string("names no pre-tokenizer")
                     : fmt::format("wants the unknown pre-tokenizer {}", quote_text(name));
    throw Unsupported(
        fmt::format("{} {}; a wrong one would quietly give wrong tokens\nknown: {}\n"
                    "if you know which one fits, name it with --force-pre NAME",
                    source, found, known));
  }
  if (pre->kind == PreTokenizerKind::kDefault) {
    log_warning(
        fmt::format("{}: the pre-tokenizer is \"default\", a guess made when the file was "
                    "written; tokens may differ from those the model was trained with "
                    "(--force-pre NAME chooses another)",
                    source));
  }
  return *pre;
}

class TokenizerImpl final : public Tokenizer {
 public:
  TokenizerImpl(TokenizerData data, const std::string& force_pre)
      : vocabulary_(std::move(data)), special_(special_candidates(vocabulary_)) {
    const TokenizerData& d = vocabulary_.data();
    const bool spm = vocabulary_.is_sentencepiece();
    bool default_bos = spm;
    if (spm) {
      model_.emplace<std::unique_ptr<SentencePieceBpe>>(
          std::make_unique<SentencePieceBpe>(vocabulary_));
    } else {
      const PreTokenizer& pre = choose_pre_tokenizer(d, force_pre);
      default_bos = pre.llama3_family;
      model_.emplace<std::unique_ptr<ByteLevelBpe>>(
          std::make_unique<ByteLevelBpe>(vocabulary_, pre));
    }
    space_prefix_ = spm && d.add_space_prefix.value_or(true);
    add_bos_ = d.add_bos.value_or(default_bos);
    add_eos_ = d.add_eos.value_or(false);
    if (add_bos_ && !d.bos) {
      log_debug(fmt::format("{}: no begin-of-sequence token, so none is added", d.source));
      add_bos_ = false;
    }
    if (add_eos_ && !d.eos) add_eos_ = false;
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    return encode_text(text, options.parse_special, {}, options.add_special);
  }

  std::vector<TokenId> encode_marked(std::string_view text, std::span<const ByteRange> untrusted,
                                     bool add_special) const override {
    size_t at = 0;
    for (const ByteRange& range : untrusted) {
      if (range.begin < at || range.end < range.begin || range.end > text.size()) {
        throw InvalidArgument(
            fmt::format("untrusted range {}..{} of a text of {} bytes is not in "
                        "order or outside the text",
                        range.begin, range.end, text.size()));
      }
      at = range.end;
    }
    return encode_text(text, true, untrusted, add_special);
  }

  std::string token_bytes(TokenId id, bool show_special) const override {
    vocabulary_.check(id);
    const std::string& text = vocabulary_.text(id);
    const bool spm = vocabulary_.is_sentencepiece();
    switch (vocabulary_.type(id)) {
      case TokenType::kControl:
      case TokenType::kUnknown:
      case TokenType::kUnused:
        return show_special ? text : std::string();
      case TokenType::kUserDefined:
        return spm ? sentencepiece_to_text(text) : text;
      case TokenType::kByte:
        if (const std::optional<uint8_t> byte = parse_byte_token(text)) {
          return std::string(1, static_cast<char>(*byte));
        }
        return text;
      case TokenType::kNormal:
        break;
    }
    if (vocabulary_.is_end(id) && !show_special) return {};
    return spm ? sentencepiece_to_text(text) : from_byte_level(text);
  }

  std::string decode(std::span<const TokenId> ids, bool show_special) const override {
    std::string bytes;
    for (const TokenId id : ids)
      bytes += token_bytes(id, show_special);
    std::string out;
    out.reserve(bytes.size());
    std::string_view rest = bytes;
    if (space_prefix_ && rest.starts_with(' ')) rest.remove_prefix(1);
    append_valid_utf8(out, rest);
    return out;
  }

  const std::string& token_text(TokenId id) const override {
    vocabulary_.check(id);
    return vocabulary_.text(id);
  }
  TokenType token_type(TokenId id) const override {
    vocabulary_.check(id);
    return vocabulary_.type(id);
  }
  std::optional<TokenId> find_token(std::string_view text) const override {
    return vocabulary_.find(text);
  }
  int32_t n_vocab() const override { return vocabulary_.size(); }
  bool is_end(TokenId id) const override { return vocabulary_.is_end(id); }
  const TokenizerData& data() const override { return vocabulary_.data(); }
  bool adds_bos() const override { return add_bos_; }
  bool adds_eos() const override { return add_eos_; }
  bool strips_leading_space() const override { return space_prefix_; }

 private:
  std::vector<TokenId> encode_text(std::string_view text, bool parse_special,
                                   std::span<const ByteRange> untrusted, bool add_special) const {
    // Offsets are 32 bits wide, and SentencePiece triples spaces.
    if (text.size() > std::numeric_limits<uint32_t>::max() / 4) {
      throw InvalidArgument(
          fmt::format("a text of {} bytes is too long to tokenize at once", text.size()));
    }
    const std::vector<TextFragment> fragments = special_.partition(text, parse_special, untrusted);
    const TokenizerData& d = vocabulary_.data();
    std::vector<TokenId> ids;
    ids.reserve(text.size() / 4 + 8);
    // A text that already begins or ends with the token does not get a second one.
    const bool has_bos =
        !fragments.empty() && fragments.front().id >= 0 && fragments.front().id == d.bos;
    const bool has_eos =
        !fragments.empty() && fragments.back().id >= 0 && fragments.back().id == d.eos;
    if (add_special && add_bos_ && !has_bos) ids.push_back(*d.bos);
    for (const TextFragment& f : fragments) {
      if (f.id >= 0) {
        ids.push_back(f.id);
        continue;
      }
      const std::string_view raw = text.substr(f.begin, f.end - f.begin);
      if (const auto* bpe = std::get_if<std::unique_ptr<ByteLevelBpe>>(&model_)) {
        (*bpe)->encode(raw, ids);
      } else {
        std::get<std::unique_ptr<SentencePieceBpe>>(model_)->encode(raw, space_prefix_, ids);
      }
    }
    if (add_special && add_eos_ && !has_eos) ids.push_back(*d.eos);
    return ids;
  }

  const Vocabulary vocabulary_;
  const SpecialTokens special_;
  std::variant<std::unique_ptr<ByteLevelBpe>, std::unique_ptr<SentencePieceBpe>> model_;
  bool space_prefix_ = false, add_bos_ = false, add_eos_ = false;
};

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::create(TokenizerData data,
                                                   const std::string& force_pre) {
  if (data.model != "gpt2" && data.model != "llama") {
    throw Unsupported(
        fmt::format("{}: the tokenizer model {} is not supported; known: gpt2 "
                    "(byte-level BPE), llama (SentencePiece BPE)",
                    data.source.empty() ? "the model" : data.source, quote_text(data.model)));
  }
  const std::string source = data.source;
  try {
    return std::make_shared<TokenizerImpl>(std::move(data), force_pre);
  } catch (const FormatError& error) {
    // The parts that check the data do not all know where it came from.
    const std::string what = error.what();
    if (source.empty() || what.find(source) != std::string::npos) throw;
    throw FormatError(fmt::format("{}: {}", source, what));
  }
}

}  // namespace ts
