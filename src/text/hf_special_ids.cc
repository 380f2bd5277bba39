#include "text/hf_special_ids.h"

#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "text/vocabulary.h"

namespace ts {
namespace {

using nlohmann::json;

/// "<x>_token" is a string, or an object with "content".
std::optional<std::string> token_text(const json& config, const char* key, std::string_view where) {
  const json* value = json_member(config, key);
  if (value == nullptr) return std::nullopt;
  if (value->is_object()) return json_string(*value, "content", where);
  if (value->is_string()) return value->get<std::string>();
  if (value->is_boolean()) return std::nullopt;  // false, for "none"
  throw FormatError(
      fmt::format("{}: \"{}\" is {}, expected a string", where, key, json_kind(*value)));
}

/// A token id. Nothing for -1, which some files write for "none"; FormatError for what is no
/// integer and, for tokens that begin or end texts, what is no id; others matter little.
std::optional<TokenId> read_id(const json& value, const HfTokenList& tokens, const char* key,
                               std::string_view where) {
  if (!value.is_number_integer()) {
    throw FormatError(
        fmt::format("{}: \"{}\" is {}, expected a token id", where, key, json_kind(value)));
  }
  if (!value.is_number_unsigned() && value.get<int64_t>() == -1) return std::nullopt;
  const std::string_view name = key;
  const bool matters = name == "bos_token_id" || name == "eos_token_id";
  constexpr int64_t kMax = 0x7FFFFFFF;
  const bool fits =
      !value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(kMax);
  if (!fits || value.get<int64_t>() < 0 || value.get<int64_t>() > kMax ||
      !tokens.has(static_cast<TokenId>(value.get<int64_t>()))) {
    const std::string what = fmt::format("{}: \"{}\" is {}, which is no token of the vocabulary",
                                         where, key, value.dump());
    if (matters) throw FormatError(what);
    log_warning(what + ", and is ignored");
    return std::nullopt;
  }
  return static_cast<TokenId>(value.get<int64_t>());
}

/// As read_id(), for a key that may hold a list; its ids in order.
std::vector<TokenId> read_ids(const json& value, const HfTokenList& tokens, const char* key,
                              std::string_view where) {
  std::vector<TokenId> ids;
  const auto add = [&](const json& one) {
    if (const auto id = read_id(one, tokens, key, where)) ids.push_back(*id);
  };
  if (!value.is_array()) {
    add(value);
  } else {
    for (const json& one : value)
      add(one);
  }
  return ids;
}

/// config.json and the part of it about text.
std::array<const json*, 2> configs_of(const HfFiles& files) {
  return {&files.config, json_member(files.config, "text_config")};
}

std::optional<TokenId> find_id(const HfFiles& files, const HfTokenList& tokens, const char* name) {
  const std::string key = fmt::format("{}_token", name), id_key = key + "_id";
  const std::string where = files.name_of("config.json");
  std::optional<TokenId> configured;
  for (const json* config : configs_of(files)) {
    const json* value = config != nullptr ? json_member(*config, id_key.c_str()) : nullptr;
    if (value == nullptr) continue;
    // A list (of end tokens) names no single one; read_end_list() takes it.
    const auto ids = read_ids(*value, tokens, id_key.c_str(), where);
    if (!value->is_array() && !ids.empty() && !configured) configured = ids[0];
  }
  const std::string config_name = files.name_of("tokenizer_config.json");
  if (const auto text = token_text(files.tokenizer_config, key.c_str(), config_name)) {
    if (const auto id = tokens.find(*text)) return id;
    log_warning(fmt::format("{}: \"{}\" is {}, which is no token of the vocabulary, and is ignored",
                            config_name, key, quote_text(*text)));
  }
  return configured;
}

/// Ids beyond eos at which the publisher stops, where their texts do not say it already.
void read_end_list(const HfFiles& files, const HfTokenList& tokens, TokenizerData& data) {
  struct Source {
    const json* values;
    const char* file;
  };
  const auto configs = configs_of(files);
  bool taken = false;
  for (const Source& source :
       {Source{&files.generation_config, "generation_config.json"},
        Source{configs[0], "config.json"}, Source{configs[1], "config.json"}}) {
    const json* list =
        source.values != nullptr ? json_member(*source.values, "eos_token_id") : nullptr;
    if (list == nullptr) continue;
    const auto ids = read_ids(*list, tokens, "eos_token_id", files.name_of(source.file));
    if (!list->is_array() || std::exchange(taken, true)) continue;
    for (const TokenId id : ids) {
      if (id == data.eos || is_end_text(data.tokens[static_cast<size_t>(id)])) continue;
      if (!data.eot) {
        data.eot = id;
      } else if (!data.eom && data.eot != id) {
        data.eom = id;
      }
    }
  }
}

/// The token that a template puts before or after the text. GGUF has one place for each: the role
/// `id`, which is given that token if it has none.
void read_template_token(const json& processor, const json& step, const char* role,
                         const HfTokenList& tokens, std::string_view where,
                         std::optional<TokenId>& id) {
  const json* special = json_member(step, "SpecialToken");
  const auto text =
      special != nullptr ? json_string(*special, "id", where) : std::optional<std::string>();
  const auto token = text ? tokens.find(*text) : std::nullopt;
  if (!token) {
    throw FormatError(fmt::format(
        "{}: \"post_processor\": \"single\" names {}, which is no token of the vocabulary", where,
        text ? quote_text(*text) : std::string("something")));
  }
  // The processor has a table of its own, which counts.
  const json* table = json_member(processor, "special_tokens");
  const json* entry = table != nullptr ? json_member(*table, text->c_str()) : nullptr;
  const json* ids = entry != nullptr ? json_member(*entry, "ids") : nullptr;
  if (ids != nullptr && *ids != json::array({*token})) {
    throw Unsupported(fmt::format(
        "{}: \"post_processor\" gives {} the ids {}, but the token's id is {}; GGUF cannot "
        "state that",
        where, quote_text(*text), quote_text(ids->dump(), 60), *token));
  }
  if (!id) id = token;
  if (id != token) {
    throw Unsupported(fmt::format(
        "{}: \"post_processor\" adds {} to texts, which is not the {} token; GGUF cannot "
        "state that, so token ids would differ",
        where, quote_text(*text), role));
  }
}

/// "single": at most one token before the text and one after it.
void read_template(const json& processor, const HfTokenList& tokens, std::string_view where,
                   TokenizerData& data) {
  const json* single = json_member(processor, "single");
  if (single == nullptr || !single->is_array()) {
    throw FormatError(fmt::format(
        "{}: \"post_processor\" of type TemplateProcessing has no list \"single\"", where));
  }
  size_t text_at = single->size(), n_texts = 0;
  for (size_t i = 0; i < single->size(); ++i) {
    if (json_member((*single)[i], "Sequence") == nullptr) continue;
    text_at = i;
    ++n_texts;
  }
  if (n_texts != 1 || text_at > 1 || single->size() - text_at > 2) {
    throw Unsupported(fmt::format(
        "{}: \"post_processor\": \"single\" is not the text with at most one token on each "
        "side; GGUF cannot state that, so token ids would differ",
        where));
  }
  data.add_bos = text_at == 1;
  data.add_eos = single->size() - text_at == 2;
  if (*data.add_bos)
    read_template_token(processor, single->front(), "BOS", tokens, where, data.bos);
  if (*data.add_eos) read_template_token(processor, single->back(), "EOS", tokens, where, data.eos);
}

void read_post_processor(const json& processor, const HfTokenList& tokens, std::string_view where,
                         TokenizerData& data) {
  const auto type = json_string(processor, "type", where).value_or("");
  if (type == "Sequence") {
    const json* list = json_member(processor, "processors");
    if (list == nullptr || !list->is_array()) {
      throw FormatError(
          fmt::format("{}: \"post_processor\" of type Sequence has no list \"processors\"", where));
    }
    for (const json& inner : *list)
      read_post_processor(inner, tokens, where, data);
  } else if (type == "TemplateProcessing") {
    read_template(processor, tokens, where, data);
  } else if (type != "ByteLevel") {  // that one changes offsets only
    throw Unsupported(fmt::format(
        "{}: \"post_processor\" has the type {}, which is not known; GGUF may not be able "
        "to state what it adds\nknown: ByteLevel, Sequence, TemplateProcessing",
        where, quote_text(type)));
  }
}

}  // namespace

void read_hf_special_ids(const HfFiles& files, const HfTokenList& tokens, TokenizerData& data) {
  const auto set = [&](std::optional<TokenId>& id, const char* name) {
    if (const auto found = find_id(files, tokens, name)) id = found;
  };
  set(data.bos, "bos");
  set(data.eos, "eos");
  set(data.unk, "unk");
  set(data.sep, "sep");
  set(data.pad, "pad");
  set(data.mask, "mask");
  read_end_list(files, tokens, data);

  if (const json* processor = json_member(files.tokenizer, "post_processor")) {
    read_post_processor(*processor, tokens, files.name_of("tokenizer.json"), data);
  }
  const std::string where = files.name_of("tokenizer_config.json");
  if (const auto add = json_bool(files.tokenizer_config, "add_bos_token", where)) {
    data.add_bos = add;
  }
  if (const auto add = json_bool(files.tokenizer_config, "add_eos_token", where)) {
    data.add_eos = add;
  }
}

}  // namespace ts
