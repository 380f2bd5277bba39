#include "convert/hf_config.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/quote_text.h"

namespace ts {
namespace {

constexpr size_t kMaxConfigBytes = size_t{16} << 20;

std::string first_class(const nlohmann::json& object) {
  const nlohmann::json* list = member(object, "architectures");
  if (list == nullptr || !list->is_array() || list->empty() || !(*list)[0].is_string()) return {};
  return (*list)[0].get<std::string>();
}

}  // namespace

const nlohmann::json* member(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string show_json(const nlohmann::json& value) {
  return quote_text(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

HfConfig HfConfig::read(const std::filesystem::path& directory) {
  const auto file =
      MappedFile::open(directory / "config.json", {.name = "JSON file of a checkpoint"});
  const auto bytes = file->bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file->path().string());
}

HfConfig HfConfig::parse(std::string_view text, std::string source) {
  JsonLimits limits;
  limits.max_bytes = kMaxConfigBytes;
  HfConfig config;
  config.source_ = std::move(source);
  config.values_ = parse_json_limited(text, config.source_, limits);
  if (!config.values_.is_object())
    throw FormatError(fmt::format("{}: found {}, expected a JSON object of model settings",
                                  config.source_, show_json(config.values_)));
  config.model_class_ = first_class(config.values_);
  if (const nlohmann::json* inner = member(config.values_, "text_config")) {
    if (!inner->is_object())
      config.fail("text_config", "expected an object, found " + show_json(*inner));
    if (std::string own = first_class(*inner); !own.empty()) config.model_class_ = std::move(own);
    const nlohmann::json copy = *inner;
    for (const auto& [key, value] : copy.items())
      config.values_[key] = value;
  }
  config.refuse_encoder();
  if (config.model_class_.empty())
    config.fail("architectures", "missing, expected a list with the name of the model class");
  return config;
}

void HfConfig::refuse_encoder() const {
  if (find("text_config") != nullptr || find("vocab_size") != nullptr) return;
  for (const char* key : {"vision_config", "patch_size"}) {
    if (find(key) == nullptr) continue;
    refuse(key,
           "there is neither text_config nor vocab_size beside it: these are the settings of an "
           "image encoder, not of a language model\nconvert the directory of the whole model");
  }
}

const nlohmann::json* HfConfig::find(std::string_view key) const {
  return member(values_, key);
}

bool HfConfig::is_null(std::string_view key) const {
  const auto found = values_.find(key);
  return found != values_.end() && found->is_null();
}

std::optional<int64_t> HfConfig::get_int(std::string_view key, int64_t min, int64_t max) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max)
    fail(key,
         fmt::format("found {}, expected an integer from {} to {}", show_json(*value), min, max));
  return value->get<int64_t>();
}

int64_t HfConfig::require_int(std::string_view key, int64_t min, int64_t max) const {
  const auto value = get_int(key, min, max);
  if (!value) fail(key, fmt::format("missing, expected an integer from {} to {}", min, max));
  return *value;
}

std::optional<double> HfConfig::get_number(std::string_view key) const {
  return number_in(values_, "", key);
}

std::optional<bool> HfConfig::get_bool(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(key, "found " + show_json(*value) + ", expected true or false");
  return value->get<bool>();
}

std::optional<std::string> HfConfig::get_string(std::string_view key) const {
  return string_in(values_, "", key);
}

std::optional<double> HfConfig::number_in(const nlohmann::json& dictionary, std::string_view where,
                                          std::string_view key) const {
  const nlohmann::json* value = member(dictionary, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    fail(std::string(where).append(key), "found " + show_json(*value) + ", expected a number");
  return value->get<double>();
}

std::optional<std::string> HfConfig::string_in(const nlohmann::json& dictionary,
                                               std::string_view where, std::string_view key) const {
  const nlohmann::json* value = member(dictionary, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string())
    fail(std::string(where).append(key), "found " + show_json(*value) + ", expected a string");
  return value->get<std::string>();
}

void HfConfig::fail(std::string_view key, const std::string& what) const {
  throw FormatError(fmt::format("{}: {}: {}", source_, key, what));
}

void HfConfig::refuse(std::string_view key, const std::string& what) const {
  throw Unsupported(fmt::format("{}: {}: {}", source_, key, what));
}

}  // namespace ts
