#include "text/hf_special_ids.h"

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

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

/// A token id, if the key holds a single integer that is one.
std::optional<TokenId> single_id(const json& value, const HfTokenList& tokens) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{0x7FFFFFFF}) {
    return std::nullopt;
  }
  const auto id = value.get<int64_t>();
  if (id < 0 || id > 0x7FFFFFFF || !tokens.has(static_cast<TokenId>(id))) return std::nullopt;
  return static_cast<TokenId>(id);
}

std::optional<TokenId> find_id(const HfFiles& files, const HfTokenList& tokens, const char* name) {
  const std::string key = fmt::format("{}_token", name), id_key = key + "_id";
  const auto text =
      token_text(files.tokenizer_config, key.c_str(), files.name_of("tokenizer_config.json"));
  if (text) {
    if (const auto id = tokens.find(*text)) return id;
  }
  const json* text_config = json_member(files.config, "text_config");
  for (const json* config : {&files.config, text_config}) {
    if (config == nullptr) continue;
    const json* value = json_member(*config, id_key.c_str());
    if (value == nullptr) continue;
    if (const auto id = single_id(*value, tokens)) return id;
  }
  return std::nullopt;
}

/// Ids beyond eos at which the publisher stops, where their texts do not say it already.
void read_end_list(const HfFiles& files, const HfTokenList& tokens, TokenizerData& data) {
  const json* text_config = json_member(files.config, "text_config");
  for (const json* config : {&files.generation_config, &files.config, text_config}) {
    if (config == nullptr) continue;
    const json* list = json_member(*config, "eos_token_id");
    if (list == nullptr || !list->is_array()) continue;
    for (const json& value : *list) {
      const auto id = single_id(value, tokens);
      if (!id || id == data.eos || is_end_text(data.tokens[static_cast<size_t>(*id)])) continue;
      if (!data.eot) {
        data.eot = id;
      } else if (!data.eom && data.eot != id) {
        data.eom = id;
      }
    }
    return;
  }
}

/// Whether a step {"SpecialToken": {"id": text}} names this token.
bool is_special_step(const json& step, std::optional<TokenId> id, const HfTokenList& tokens,
                     std::string_view where) {
  const json* special = json_member(step, "SpecialToken");
  if (special == nullptr) return false;
  const auto text = json_string(*special, "id", where);
  return text && tokens.find(*text) == id;
}

void read_post_processor(const json& processor, const HfTokenList& tokens, std::string_view where,
                         TokenizerData& data) {
  const auto type = json_string(processor, "type", where).value_or("");
  if (type == "Sequence") {
    const json* list = json_member(processor, "processors");
    if (list == nullptr || !list->is_array()) return;
    for (const json& inner : *list)
      read_post_processor(inner, tokens, where, data);
  } else if (type == "TemplateProcessing") {
    const json* single = json_member(processor, "single");
    if (single == nullptr || !single->is_array() || single->empty()) return;
    if (data.bos) data.add_bos = is_special_step(single->front(), data.bos, tokens, where);
    if (data.eos) data.add_eos = is_special_step(single->back(), data.eos, tokens, where);
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
