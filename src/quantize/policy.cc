#include "quantize/policy.h"

#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/error.hpp>

#include "base/glob.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "base/quote_text.h"
#include "codec/codec.h"

namespace ts {
namespace {

constexpr const char* kBuiltIn = "all, ffn-only, keep-down, attention-f16";

PolicyRule rule(std::string match, std::string scheme) {
  PolicyRule r;
  r.match = std::move(match);
  r.scheme = std::move(scheme);
  return r;
}

std::optional<Policy> built_in(std::string_view name) {
  Policy policy;
  policy.name = std::string(name);
  auto& rules = policy.rules;
  if (name == "all") {
    rules = {rule("*", "main")};
  } else if (name == "ffn-only") {
    rules = {rule("blk.*.ffn_gate.weight", "main"), rule("blk.*.ffn_up.weight", "main"),
             rule("*", "f16")};
  } else if (name == "keep-down") {
    rules = {rule("blk.*.ffn_down.weight", "keep"), rule("blk.*", "main"), rule("*", "auto")};
  } else if (name == "attention-f16") {
    rules = {rule("blk.*.ffn_*", "main"), rule("blk.*", "f16"), rule("*", "auto")};
  } else {
    return std::nullopt;
  }
  return policy;
}

/// One rule of a file, every key checked.
class RuleReader {
 public:
  RuleReader(const nlohmann::json& value, std::string place)
      : value_(value), place_(std::move(place)) {}

  PolicyRule read() {
    if (!value_.is_object()) fail("expected an object with \"match\" and \"scheme\"");
    PolicyRule result;
    for (const auto& [key, value] : value_.items()) {
      if (key == "match") {
        result.match = text(key, value);
      } else if (key == "scheme") {
        result.scheme = scheme(text(key, value));
      } else if (key == "planes") {
        if (!value.is_number_integer() || value.get<int64_t>() < 1 ||
            value.get<int64_t>() > kMaxPlanes)
          fail(fmt::format("\"planes\" is {}, expected 1 to {}", value.dump(), kMaxPlanes));
        result.planes = value.get<int>();
      } else if (key == "rotate") {
        if (!value.is_boolean())
          fail(fmt::format("\"rotate\" is {}, expected true or false", value.dump()));
        result.rotate = value.get<bool>();
      } else if (key == "method") {
        result.method = parse_ternary_method(text(key, value));
        if (!result.method) fail(fmt::format("\"method\" is {}, which is not known", value.dump()));
      } else if (key == "sparsity") {
        result.sparsity = parse_sparsity(text(key, value));
        if (!result.sparsity)
          fail(fmt::format("\"sparsity\" is {}, expected none, 2:4, 3:4 or 1-2:4", value.dump()));
      } else {
        fail(
            fmt::format("unknown key {}; known are match, scheme, planes, rotate, method, sparsity",
                        quote_text(key)));
      }
    }
    if (result.match.empty()) fail("\"match\" is missing");
    if (!value_.contains("scheme")) fail("\"scheme\" is missing");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FormatError(fmt::format("{}: {}", place_, what));
  }
  std::string text(const std::string& key, const nlohmann::json& value) const {
    if (!value.is_string()) fail(fmt::format("\"{}\" is {}, expected a text", key, value.dump()));
    return value.get<std::string>();
  }
  std::string scheme(const std::string& name) const {
    if (name == "main" || name == "keep" || name == "auto") return name;
    const Codec* codec = find_codec(std::string_view(name));
    if (codec == nullptr || codec->encode == nullptr)
      fail(fmt::format("\"scheme\" is {}, which is no weight type that can be written",
                       quote_text(name)));
    return name;
  }

  const nlohmann::json& value_;
  std::string place_;
};

Policy read_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  JsonLimits limits;
  limits.refuse_duplicate_keys = true;
  const nlohmann::json json = parse_json_limited(
      std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path, limits);
  if (!json.is_object() || !json.contains("rules") || !json.at("rules").is_array() ||
      json.at("rules").empty() || json.size() != 1)
    throw FormatError(
        fmt::format("{}: expected an object with the one key \"rules\", a list of rules", path));
  Policy policy;
  policy.name = path;
  for (const auto& value : json.at("rules"))
    policy.rules.push_back(
        RuleReader(value, fmt::format("{}: rule {}", path, policy.rules.size() + 1)).read());
  return policy;
}

}  // namespace

const PolicyRule* Policy::find(std::string_view tensor) const noexcept {
  for (const PolicyRule& r : rules) {
    if (glob_match(r.match, tensor)) return &r;
  }
  return nullptr;
}

Policy default_policy() {
  Policy policy;
  policy.name = "default";
  policy.rules = {rule("blk.*", "main"), rule("*", "auto")};
  return policy;
}

Policy read_policy(const std::string& name_or_file) {
  if (auto policy = built_in(name_or_file)) return std::move(*policy);
  std::error_code ec;
  if (!std::filesystem::exists(name_or_file, ec))
    throw InvalidArgument(
        fmt::format("--policy {}: no such policy or file\nbuilt in are {}; a file ends in .json",
                    quote_text(name_or_file), kBuiltIn));
  return read_file(name_or_file);
}

}  // namespace ts
