#include "model/gguf_tokenizer.h"

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"

namespace ts {
namespace {

constexpr const char* kModel = "tokenizer.ggml.model";
constexpr const char* kTokens = "tokenizer.ggml.tokens";
constexpr const char* kMerges = "tokenizer.ggml.merges";
constexpr const char* kTypes = "tokenizer.ggml.token_type";
constexpr const char* kScores = "tokenizer.ggml.scores";
constexpr std::string_view kTemplate = "tokenizer.chat_template";

std::optional<TokenId> read_id(const Metadata& metadata, const char* name, size_t n_tokens) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
  // -1 is written by some tools for "none".
  const std::optional<int64_t> id =
      metadata.get_int(key, std::numeric_limits<int32_t>::min(), 0xFFFFFFFFll);
  if (!id) return std::nullopt;
  if (*id < 0 || static_cast<uint64_t>(*id) >= n_tokens) return std::nullopt;
  return static_cast<TokenId>(*id);
}

const std::vector<std::string>& required_strings(const Metadata& metadata, const char* key) {
  const std::vector<std::string>* strings = metadata.get_strings(key);
  if (strings == nullptr) {
    throw FormatError(fmt::format("{}: the key {} is missing; without it text cannot be tokenized",
                                  metadata.source(), key));
  }
  return *strings;
}

void check_length(const Metadata& metadata, const char* key, size_t found, size_t expected) {
  if (found == expected) return;
  throw FormatError(fmt::format("{}: {} has {} entries but there are {} tokens", metadata.source(),
                                key, found, expected));
}

void read_templates(const Metadata& metadata, TokenizerData& data) {
  data.chat_template = metadata.get_string(kTemplate).value_or("");
  for (const auto& [key, value] : metadata.entries()) {
    if (key.size() <= kTemplate.size() + 1 || !key.starts_with(kTemplate) ||
        key[kTemplate.size()] != '.') {
      continue;
    }
    data.extra_templates.emplace_back(key.substr(kTemplate.size() + 1),
                                      metadata.get_string(key).value_or(""));
  }
}

}  // namespace

TokenizerData read_gguf_tokenizer(const Metadata& metadata) {
  TokenizerData data;
  data.source = metadata.source();
  data.model = metadata.get_string(kModel).value_or("");
  if (data.model.empty()) {
    throw Unsupported(
        fmt::format("{}: the file has no tokenizer ({} is missing)\ngive token ids "
                    "instead of text, or convert the model with its tokenizer",
                    metadata.source(), kModel));
  }
  if (data.model != "gpt2" && data.model != "llama") {
    throw Unsupported(
        fmt::format("{}: {} is {}; known: gpt2 (byte-level BPE), llama (SentencePiece "
                    "BPE)",
                    metadata.source(), kModel, quote_text(data.model)));
  }
  const bool spm = data.model == "llama";
  data.pre = metadata.get_string("tokenizer.ggml.pre").value_or("");
  data.tokens = required_strings(metadata, kTokens);
  const size_t n = data.tokens.size();
  constexpr auto kMin = std::numeric_limits<int32_t>::min();
  constexpr auto kMax = std::numeric_limits<int32_t>::max();
  if (const auto types = metadata.get_ints(kTypes, kMin, kMax)) {
    check_length(metadata, kTypes, types->size(), n);
    data.types.reserve(n);
    for (const int64_t type : *types)
      data.types.push_back(static_cast<TokenType>(type));
  }
  if (spm) {
    auto scores = metadata.get_floats(kScores);
    if (!scores) {
      throw FormatError(fmt::format("{}: the key {} is missing; this tokenizer merges by score",
                                    metadata.source(), kScores));
    }
    check_length(metadata, kScores, scores->size(), n);
    data.scores = std::move(*scores);
  } else {
    data.merges = required_strings(metadata, kMerges);
  }

  data.bos = read_id(metadata, "bos", n);
  data.eos = read_id(metadata, "eos", n);
  data.eot = read_id(metadata, "eot", n);
  data.eom = read_id(metadata, "eom", n);
  data.unk = read_id(metadata, "unknown", n);
  data.sep = read_id(metadata, "seperator", n);  // the format's spelling
  data.pad = read_id(metadata, "padding", n);
  data.mask = read_id(metadata, "mask", n);
  for (const char* name : {"fim_pad", "fim_rep", "fim_sep"}) {
    if (const auto id = read_id(metadata, name, n)) data.fim_stop.push_back(*id);
  }
  data.add_bos = metadata.get_bool("tokenizer.ggml.add_bos_token");
  data.add_eos = metadata.get_bool("tokenizer.ggml.add_eos_token");
  data.add_space_prefix = metadata.get_bool("tokenizer.ggml.add_space_prefix");
  read_templates(metadata, data);
  for (const std::string& line : find_bad_token_ids(metadata))
    log_warning(fmt::format("{}: {}, and is ignored", metadata.source(), line));
  return data;
}

std::vector<std::string> find_bad_token_ids(const Metadata& metadata) {
  std::vector<std::string> lines;
  const std::vector<std::string>* tokens = metadata.get_strings(kTokens);
  if (tokens == nullptr) return lines;
  for (const auto& [key, value] : metadata.entries()) {
    if (!key.starts_with("tokenizer.ggml.") || !key.ends_with("_token_id")) continue;
    uint64_t id = 0;
    if (const auto* as_unsigned = std::get_if<uint64_t>(&value.value)) {
      id = *as_unsigned;
      if (id == 0xFFFFFFFFu || id == ~uint64_t{0}) continue;
    } else if (const auto* as_signed = std::get_if<int64_t>(&value.value)) {
      if (*as_signed == -1) continue;
      id = static_cast<uint64_t>(*as_signed);  // negative: beyond any vocabulary
    } else {
      continue;  // of the wrong type, which reading reports where the key is used
    }
    if (id >= tokens->size()) {
      lines.push_back(fmt::format("{} is {}, but token ids go from 0 to {}", key,
                                  static_cast<int64_t>(id), tokens->size() - 1));
    }
  }
  return lines;
}

}  // namespace ts
