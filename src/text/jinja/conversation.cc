#include "text/jinja/conversation.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/quote_text.h"
#include "text/jinja/text.h"

namespace ts::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::string_view last_name(const Expr* e) {
  while (e && (e->kind == Expr::Kind::kFilter || e->kind == Expr::Kind::kSlice) &&
         !e->items.empty())
    e = e->items[0];
  if (!e) return {};
  if (e->kind == Expr::Kind::kName || e->kind == Expr::Kind::kAttribute) return e->name;
  if (e->kind == Expr::Kind::kSubscript && e->items[1]->kind == Expr::Kind::kString)
    return e->items[1]->name;
  return {};
}

std::string trimmed(std::string_view text) {
  const ByteRange r = strip_range(text, nullptr, true, true);
  return std::string(text.substr(r.begin, r.end - r.begin));
}

[[noreturn]] void reject(const std::string& where, std::string_view found,
                         std::string_view wanted) {
  throw InvalidArgument(fmt::format("{}: found {}, expected {}", where, found, wanted));
}

std::string_view type_of(const Json& j) {
  return j.is_null() ? "null" : j.type_name();
}

}  // namespace

TemplateTraits find_traits(const Syntax& syntax, std::string_view source) {
  TemplateTraits traits;
  for (const Stmt& s : syntax.stmts)
    if (s.kind == Stmt::Kind::kFor && last_name(s.value) == "content")
      traits.iterates_content = true;
  for (const Expr& e : syntax.exprs) {
    if (e.kind == Expr::Kind::kTest && e.name == "none" && last_name(e.items[0]) == "content")
      traits.tests_content_none = true;
    if (e.kind == Expr::Kind::kCompare && e.items.size() == 2 &&
        e.items[1]->kind == Expr::Kind::kNone && last_name(e.items[0]) == "content")
      traits.tests_content_none = true;
  }
  traits.knows_developer = source.find("developer") != source.npos;
  traits.knows_xhigh = source.find("xhigh") != source.npos;
  return traits;
}

Conversation::Conversation(const ChatRequest& request, const TemplateTraits& traits)
    : traits_(traits) {
  if (!request.messages.is_array())
    reject("messages", type_of(request.messages), "an array of messages");
  if (request.messages.empty())
    throw InvalidArgument("messages: the list is empty, expected at least one message");
  if (!request.extra.is_object() && !request.extra.is_null())
    reject("template variables", type_of(request.extra), "an object");
  if (!request.tools.is_null() && !request.tools.is_array())
    reject("tools", type_of(request.tools), "an array or null");

  variables_["messages"] = Json::array();
  for (size_t i = 0; i < request.messages.size(); ++i)
    add_message(request.messages[i], i);
  if (!request.tools.is_null()) variables_["tools"] = request.tools;
  variables_["add_generation_prompt"] = request.add_generation_prompt;
  variables_["bos_token"] = request.bos_token;
  variables_["eos_token"] = request.eos_token;
  if (request.extra.is_null()) return;
  for (const auto& [name, value] : request.extra.items()) {
    if (variables_.contains(name) || name == "tools")
      throw InvalidArgument(
          fmt::format("template variables: {} is set by the request itself; leave it out",
                      quote_text(name, 40)));
    variables_[name] = value;
  }
  // Names of efforts that other services use, for templates that have the levels up to "xhigh".
  const auto effort = variables_.find("reasoning_effort");
  if (traits_.knows_xhigh && effort != variables_.end() && effort->is_string()) {
    if (*effort == "minimal")
      *effort = "low";
    else if (*effort == "high" || *effort == "max")
      *effort = "xhigh";
  }
}

void Conversation::add_message(const Json& message, size_t index) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object()) reject(where, type_of(message), "an object with role and content");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get_ref<const std::string&>().empty())
    reject(where + ".role", role == message.end() ? "nothing" : type_of(*role),
           "a string: system, user, assistant or tool");
  Json result = message;
  if (*role == "developer" && !traits_.knows_developer) result["role"] = "system";
  result["content"] = content(message, where + ".content");
  const auto calls = message.find("tool_calls");
  if (calls != message.end() && !calls->is_null())
    result["tool_calls"] = tool_calls(*calls, where + ".tool_calls");

  if (result["role"] == "system") {
    system_at_.push_back(index);
    if (result["content"].is_string()) {
      std::string text = trimmed(result["content"].get_ref<const std::string&>());
      if (!text.empty()) system_texts_.push_back(std::move(text));
    }
  }
  messages().push_back(std::move(result));
}

Json Conversation::content(const Json& message, const std::string& where) {
  const auto it = message.find("content");
  if (it == message.end() || it->is_null())
    return traits_.tests_content_none ? Json(nullptr) : Json("");
  if (it->is_string()) {
    if (!traits_.wants_parts) return *it;
    Json part = {{"type", "text"}};
    part["text"] = *it;
    return Json::array({std::move(part)});
  }
  if (!it->is_array()) reject(where, type_of(*it), "a string, a list of parts or null");
  std::string text;
  bool first = true;
  for (size_t i = 0; i < it->size(); ++i) {
    const Json& part = (*it)[i];
    const std::string here = fmt::format("{}[{}]", where, i);
    if (!part.is_object()) reject(here, type_of(part), "an object with type and text");
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string())
      reject(here + ".type", type == part.end() ? "nothing" : type_of(*type), "a string");
    const bool is_text = *type == "text" || *type == "input_text" || *type == "output_text";
    if (!is_text && !traits_.iterates_content)
      reject(here + ".type", quote_text(type->get_ref<const std::string&>(), 40),
             "text: this model's chat template takes nothing else");
    if (!is_text) continue;
    const auto part_text = part.find("text");
    if (part_text == part.end() || !part_text->is_string())
      reject(here + ".text", part_text == part.end() ? "nothing" : type_of(*part_text), "a string");
    if (!first) text += '\n';
    first = false;
    text += part_text->get_ref<const std::string&>();
  }
  if (traits_.iterates_content) return *it;
  return text;
}

Json Conversation::tool_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array()) reject(where, type_of(calls), "an array of tool calls");
  Json result = calls;
  for (size_t i = 0; i < result.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    Json& call = result[i];
    if (!call.is_object()) reject(here, type_of(call), "an object");
    const bool nested = call.contains("function");
    if (nested && !call["function"].is_object())
      reject(here + ".function", type_of(call["function"]), "an object");
    Json& function = nested ? call["function"] : call;
    const std::string field = here + (nested ? ".function.arguments" : ".arguments");
    const auto arguments = function.find("arguments");
    if (arguments == function.end()) continue;
    if (arguments->is_string()) {
      const std::string text = arguments->get<std::string>();
      // Ten times deeper than any tool's arguments, and safe for all that walks over them.
      const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
        if (depth > 100) throw InvalidArgument(field + ": nested deeper than 100 levels");
        return true;
      };
      if (trimmed(text).empty()) {
        *arguments = Json::object();
      } else {
        Json parsed = Json::parse(text, check_depth, false);
        if (parsed.is_discarded())
          reject(field, quote_text(text, 40), "a JSON object as text, or an object");
        *arguments = std::move(parsed);
      }
    }
    if (arguments->is_null()) *arguments = Json::object();
    if (!arguments->is_object()) reject(field, type_of(*arguments), "a JSON object");
    has_arguments_ = true;
  }
  return result;
}

const std::string* Conversation::lost_system_text(std::string_view prompt) const {
  for (const std::string& text : system_texts_)
    if (find_bytes(prompt, text, 0) == std::string_view::npos) return &text;
  return nullptr;
}

bool Conversation::merge_system_messages() {
  if (system_at_.empty() || (system_at_.size() == 1 && system_at_[0] == 0)) return false;
  Json first, rest = Json::array();
  std::string text;
  Json parts = Json::array();
  for (size_t i = 0; i < messages().size(); ++i) {
    Json& message = messages()[i];
    if (std::find(system_at_.begin(), system_at_.end(), i) == system_at_.end()) {
      rest.push_back(std::move(message));
      continue;
    }
    const Json& content = message["content"];
    if (content.is_string()) {
      const auto& piece = content.get_ref<const std::string&>();
      if (!text.empty() && !piece.empty()) text += "\n\n";
      text += piece;
    } else if (content.is_array()) {
      if (!text.empty()) parts.push_back({{"type", "text"}, {"text", std::exchange(text, {})}});
      for (const Json& part : content)
        parts.push_back(part);
    }
    if (first.is_null()) first = std::move(message);
  }
  if (!parts.empty()) {
    if (!text.empty()) parts.push_back({{"type", "text"}, {"text", text}});
    first["content"] = std::move(parts);
  } else {
    first["content"] = std::move(text);
  }
  Json merged = Json::array({std::move(first)});
  for (Json& message : rest)
    merged.push_back(std::move(message));
  messages() = std::move(merged);
  system_at_ = {0};
  return true;
}

bool Conversation::arguments_as_text() {
  if (!has_arguments_ || std::exchange(arguments_are_text_, true)) return false;
  for (Json& message : messages()) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      Json& function = call.contains("function") ? call["function"] : call;
      const auto arguments = function.find("arguments");
      if (arguments != function.end() && !arguments->is_string()) *arguments = arguments->dump();
    }
  }
  return true;
}

}  // namespace ts::jinja
