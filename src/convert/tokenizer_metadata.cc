#include "convert/tokenizer_metadata.h"

#include <cctype>
#include <optional>
#include <string>
#include <vector>

namespace ts {
namespace {

void set_id(Metadata& metadata, const char* key, std::optional<TokenId> id) {
  if (id) metadata.set(key, MetadataValue::u32(static_cast<uint32_t>(*id)));
}

void set_flag(Metadata& metadata, const char* key, std::optional<bool> flag) {
  if (flag) metadata.set(key, MetadataValue::boolean(*flag));
}

/// Template names become parts of keys.
std::string key_part(const std::string& name) {
  std::string part = name;
  for (char& c : part) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return part;
}

}  // namespace

void write_tokenizer_metadata(const TokenizerData& data, Metadata& metadata) {
  metadata.set("tokenizer.ggml.model", MetadataValue::string(data.model));
  metadata.set("tokenizer.ggml.pre",
               MetadataValue::string(data.pre.empty() ? "default" : data.pre));
  metadata.set("tokenizer.ggml.tokens", MetadataValue::strings(data.tokens));
  if (!data.scores.empty())
    metadata.set("tokenizer.ggml.scores", MetadataValue::f32_array(data.scores));
  if (!data.types.empty()) {
    std::vector<int64_t> types;
    types.reserve(data.types.size());
    for (const TokenType type : data.types)
      types.push_back(static_cast<int64_t>(type));
    metadata.set("tokenizer.ggml.token_type", MetadataValue::i32_array(std::move(types)));
  }
  if (data.model == "gpt2")  // readers want the key even when there are none
    metadata.set("tokenizer.ggml.merges", MetadataValue::strings(data.merges));
  set_id(metadata, "tokenizer.ggml.bos_token_id", data.bos);
  set_id(metadata, "tokenizer.ggml.eos_token_id", data.eos);
  set_id(metadata, "tokenizer.ggml.eot_token_id", data.eot);
  set_id(metadata, "tokenizer.ggml.eom_token_id", data.eom);
  set_id(metadata, "tokenizer.ggml.unknown_token_id", data.unk);
  set_id(metadata, "tokenizer.ggml.seperator_token_id", data.sep);  // the format's spelling
  set_id(metadata, "tokenizer.ggml.padding_token_id", data.pad);
  set_id(metadata, "tokenizer.ggml.mask_token_id", data.mask);
  set_flag(metadata, "tokenizer.ggml.add_bos_token", data.add_bos);
  set_flag(metadata, "tokenizer.ggml.add_eos_token", data.add_eos);
  set_flag(metadata, "tokenizer.ggml.add_space_prefix", data.add_space_prefix);

  if (!data.chat_template.empty())
    metadata.set("tokenizer.chat_template", MetadataValue::string(data.chat_template));
  std::vector<std::string> names;
  for (const auto& [name, source] : data.extra_templates) {
    names.push_back(key_part(name));
    metadata.set("tokenizer.chat_template." + names.back(), MetadataValue::string(source));
  }
  if (!names.empty())
    metadata.set("tokenizer.chat_templates", MetadataValue::strings(std::move(names)));
}

}  // namespace ts
