/// The files of a Hugging Face directory that describe its tokenizer, parsed but not yet
/// understood.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace ts {

struct HfFiles {
  std::string source;  ///< the directory, for messages
  // Absent files are null; each present one is a JSON object.
  nlohmann::json tokenizer, tokenizer_config, generation_config, config;
  nlohmann::json vocab, added_tokens;  ///< vocab.json, added_tokens.json (older directories)
  nlohmann::json chat_template_json;   ///< chat_template.json
  std::optional<std::string> merges_txt;
  std::optional<std::string> sentencepiece_model;  ///< bytes of tokenizer.model
  std::optional<std::string> chat_template_jinja;
  std::vector<std::pair<std::string, std::string>> additional_templates;  ///< name, source

  std::string name_of(std::string_view file) const;
};

/// Errors: IoError, FormatError (not JSON, not an object, too large, a pointer in place of data).
HfFiles load_hf_files(const std::filesystem::path& directory);

// Members of JSON objects. Absent and null are the same; another type is a FormatError that names
// `where` and the key.
const nlohmann::json* json_member(const nlohmann::json& object, const char* key);
std::optional<std::string> json_string(const nlohmann::json& object, const char* key,
                                       std::string_view where);
std::optional<bool> json_bool(const nlohmann::json& object, const char* key,
                              std::string_view where);
/// The type in words for messages: "a string", "an object", ...
std::string json_kind(const nlohmann::json& value);

}  // namespace ts
