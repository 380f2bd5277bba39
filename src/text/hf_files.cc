#include "text/hf_files.h"

#include <algorithm>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/json.h"

namespace ts {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
constexpr size_t kMaxTemplates = 256;

std::optional<std::string> read_if_present(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return std::nullopt;
  if (error) throw IoError(fmt::format("{}: {}", path.string(), error.message()));
  if (status.type() != fs::file_type::regular) {
    throw FormatError(fmt::format("{} is not a regular file", path.string()));
  }
  const uint64_t size = fs::file_size(path, error);
  if (error) throw IoError(fmt::format("{}: {}", path.string(), error.message()));
  if (size > kMaxFileBytes) {
    throw FormatError(fmt::format("{} has {} bytes; a tokenizer file of more than {} is refused",
                                  path.string(), size, kMaxFileBytes));
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in || !in.read(bytes.data(), static_cast<std::streamsize>(size))) {
    throw IoError(fmt::format("{} cannot be read", path.string()));
  }
  if (bytes.starts_with("version https://git-lfs")) {
    throw FormatError(fmt::format("{} is a Git LFS pointer, not the file itself; download the file",
                                  path.string()));
  }
  return bytes;
}

json read_json(const fs::path& path) {
  const std::optional<std::string> text = read_if_present(path);
  if (!text) return nullptr;
  json value = parse_json_limited(*text, path.string(), {.refuse_duplicate_keys = true});
  if (!value.is_object()) {
    throw FormatError(
        fmt::format("{} holds {}, expected an object", path.string(), json_kind(value)));
  }
  return value;
}

}  // namespace

std::string HfFiles::name_of(std::string_view file) const {
  return source.empty() ? std::string(file) : fmt::format("{}/{}", source, file);
}

HfFiles load_hf_files(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    throw IoError(fmt::format("{} is not a directory that can be read", directory.string()));
  }
  HfFiles files;
  files.source = directory.string();
  files.tokenizer = read_json(directory / "tokenizer.json");
  files.tokenizer_config = read_json(directory / "tokenizer_config.json");
  files.generation_config = read_json(directory / "generation_config.json");
  files.config = read_json(directory / "config.json");
  if (files.tokenizer.is_null()) {
    files.vocab = read_json(directory / "vocab.json");
    files.merges_txt = read_if_present(directory / "merges.txt");
    files.added_tokens = read_json(directory / "added_tokens.json");
  }
  files.sentencepiece_model = read_if_present(directory / "tokenizer.model");
  files.chat_template_jinja = read_if_present(directory / "chat_template.jinja");
  files.chat_template_json = read_json(directory / "chat_template.json");
  const fs::path more = directory / "additional_chat_templates";
  if (fs::is_directory(more, error)) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(more, error)) {
      if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
    }
    if (paths.size() > kMaxTemplates) {
      throw FormatError(fmt::format("{} holds {} templates; at most {} are read", more.string(),
                                    paths.size(), kMaxTemplates));
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      if (auto text = read_if_present(path)) {
        files.additional_templates.emplace_back(path.stem().string(), std::move(*text));
      }
    }
  }
  return files;
}

const json* json_member(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<std::string> json_string(const json& object, const char* key,
                                       std::string_view where) {
  const json* value = json_member(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    throw FormatError(
        fmt::format("{}: \"{}\" is {}, expected a string", where, key, json_kind(*value)));
  }
  return value->get<std::string>();
}

std::optional<bool> json_bool(const json& object, const char* key, std::string_view where) {
  const json* value = json_member(object, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    throw FormatError(
        fmt::format("{}: \"{}\" is {}, expected true or false", where, key, json_kind(*value)));
  }
  return value->get<bool>();
}

std::string json_kind(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "a list";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

}  // namespace ts
