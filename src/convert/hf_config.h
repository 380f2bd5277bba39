/// config.json of a Hugging Face checkpoint: one dictionary of settings with checked getters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ts {

class HfConfig {
 public:
  /// Reads `directory`/config.json. Keys of `text_config` win over those of the root; a null counts
  /// as absent. Throws FormatError or IoError.
  static HfConfig read(const std::filesystem::path& directory);
  /// The same from a JSON text; `source` opens every message.
  static HfConfig parse(std::string_view text, std::string source);

  /// architectures[0], of text_config when it has one.
  const std::string& model_class() const noexcept { return model_class_; }
  const std::string& source() const noexcept { return source_; }

  /// Null when absent.
  const nlohmann::json* find(std::string_view key) const;
  /// True when the key is there with the value null.
  bool is_null(std::string_view key) const;
  // Nothing when absent; FormatError naming the key when the value has another type or is out of
  // range.
  std::optional<int64_t> get_int(std::string_view key, int64_t min, int64_t max) const;
  int64_t require_int(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> get_number(std::string_view key) const;  ///< finite
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;

  // The same getters for a dictionary inside; `where` names it.
  std::optional<double> number_in(const nlohmann::json& dictionary, std::string_view where,
                                  std::string_view key) const;
  std::optional<std::string> string_in(const nlohmann::json& dictionary, std::string_view where,
                                       std::string_view key) const;

  /// Throws FormatError "<source>: <key>: <what>".
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
  /// Throws Unsupported likewise.
  [[noreturn]] void refuse(std::string_view key, const std::string& what) const;

 private:
  /// Settings of the image part of a model without its text part: said as such.
  void refuse_encoder() const;

  std::string source_, model_class_;
  nlohmann::json values_;
};

/// `text` in short form for messages.
std::string show_json(const nlohmann::json& value);
/// The member `key` of an object, or null when it is absent or null.
const nlohmann::json* member(const nlohmann::json& object, std::string_view key);

}  // namespace ts
