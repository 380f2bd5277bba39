#include "text/jinja/chat_json.h"

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/json.h"
#include "base/quote_text.h"

namespace ts {
namespace {

using Json = nlohmann::ordered_json;

/// Watches the parser: depth, and keys per open object (an ordered object looks a key up in linear
/// time, so very many would take quadratic time; a repeated one would be dropped silently).
class Watch {
 public:
  Watch(std::string_view name, const ChatJsonLimits& limits) : name_(name), limits_(limits) {}

  bool operator()(int /*depth*/, Json::parse_event_t event, Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (static_cast<int>(keys_.size()) >= limits_.max_depth)
          throw InvalidArgument(
              fmt::format("{}: nested deeper than {} levels", name_, limits_.max_depth));
        keys_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        if (!keys_.empty()) keys_.pop_back();
        break;
      case Json::parse_event_t::key: {
        const auto& key = value.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second)
          throw InvalidArgument(
              fmt::format("{}: the key {} is given twice", name_, quote_text(key, 40)));
        if (keys_.back().size() > limits_.max_keys)
          throw InvalidArgument(
              fmt::format("{}: an object has more than {} keys", name_, limits_.max_keys));
        break;
      }
      default:
        break;
    }
    return true;
  }

 private:
  std::string_view name_;
  const ChatJsonLimits& limits_;
  std::vector<std::unordered_set<std::string>> keys_;  // one per open array or object
};

[[noreturn]] void reject(std::string_view field, const Json& found, std::string_view wanted) {
  throw InvalidArgument(fmt::format("{}: found {}, expected {}", field, found.type_name(), wanted));
}

}  // namespace

Json parse_ordered_json(std::string_view text, std::string_view name,
                        const ChatJsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    throw InvalidArgument(
        fmt::format("{}: {} bytes, at most {} are allowed", name, text.size(), limits.max_bytes));
  Watch watch(name, limits);
  try {
    return Json::parse(text, std::ref(watch));
  } catch (const nlohmann::json::parse_error& e) {
    throw FormatError(fmt::format("{}, {}: {}", name,
                                  json_position(text, e.byte > 0 ? e.byte - 1 : 0),
                                  json_reason(e.what())));
  } catch (const nlohmann::json::exception& e) {  // a number out of range
    throw FormatError(fmt::format("{}: {}", name, json_reason(e.what())));
  }
}

ChatRequest parse_chat_json(std::string_view text, const ChatJsonLimits& limits) {
  Json json = parse_ordered_json(text, "chat JSON", limits);
  ChatRequest request;
  if (json.is_array()) {
    request.messages = std::move(json);
    return request;
  }
  if (!json.is_object()) reject("chat JSON", json, "an array of messages or an object");
  if (!json.contains("messages")) throw InvalidArgument("chat JSON: the field messages is missing");
  std::string effort;
  for (auto& [key, value] : json.items()) {
    if (key == "messages") {
      if (!value.is_array()) reject(key, value, "an array");
      request.messages = std::move(value);
    } else if (key == "tools") {
      if (!value.is_array() && !value.is_null()) reject(key, value, "an array or null");
      request.tools = std::move(value);
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean()) reject(key, value, "true or false");
      request.add_generation_prompt = value.get<bool>();
    } else if (key == "chat_template_kwargs") {
      if (!value.is_object()) reject(key, value, "an object");
      request.extra = std::move(value);
    } else if (key == "reasoning_effort") {
      if (!value.is_string()) reject(key, value, "a string");
      effort = value.get<std::string>();
    } else {
      throw InvalidArgument(fmt::format(
          "chat JSON: unknown field {}; expected messages, tools, add_generation_prompt, "
          "chat_template_kwargs or reasoning_effort",
          quote_text(key, 40)));
    }
  }
  if (effort == "none")
    request.extra["enable_thinking"] = false;
  else if (!effort.empty())
    request.extra["reasoning_effort"] = effort;
  return request;
}

}  // namespace ts
