/// Adapts a request to what a chat template can take.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"
#include "text/jinja/syntax.h"

namespace ts::jinja {

/// What a template does with messages, found by looking at its syntax and by a trial rendering.
struct TemplateTraits {
  bool iterates_content = false;    ///< has a loop over something called `content`
  bool tests_content_none = false;  ///< asks whether `content` is none
  bool knows_developer = false;     ///< names the role "developer"
  bool knows_xhigh = false;         ///< names the reasoning effort "xhigh"
  bool wants_parts = false;         ///< shows content only when it is a list of parts
};
TemplateTraits find_traits(const Syntax& syntax, std::string_view source);

/// The variables of one rendering. The constructor checks the request (InvalidArgument names the
/// field) and brings contents, roles and tool-call arguments into one form; the other functions
/// make further changes that only some templates need.
class Conversation {
 public:
  Conversation(const ChatRequest& request, const TemplateTraits& traits);

  const nlohmann::ordered_json& variables() const noexcept { return variables_; }
  /// A system text that does not appear in the rendered prompt, or null.
  const std::string* lost_system_text(std::string_view prompt) const;
  /// Makes one first system message of all. False when there is nothing to change.
  bool merge_system_messages();
  /// Turns tool-call arguments back into JSON text. False when there is nothing to change.
  bool arguments_as_text();

 private:
  void add_message(const nlohmann::ordered_json& message, size_t index);
  nlohmann::ordered_json content(const nlohmann::ordered_json& message, const std::string& where);
  nlohmann::ordered_json tool_calls(const nlohmann::ordered_json& calls, const std::string& where);
  nlohmann::ordered_json& messages() { return variables_["messages"]; }

  const TemplateTraits& traits_;
  nlohmann::ordered_json variables_ = nlohmann::ordered_json::object();
  std::vector<std::string> system_texts_;  // without white space at their ends; no empty ones
  std::vector<size_t> system_at_;          // indices of the system messages
  bool has_arguments_ = false, arguments_are_text_ = false;
};

}  // namespace ts::jinja
