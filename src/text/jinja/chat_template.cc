// ChatTemplate: parses once, then renders conversations after adapting them to what the template
// can take (conversation.h).
#include "text/chat_template.h"

#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "text/jinja/conversation.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/syntax.h"

namespace ts {
namespace {

using Json = nlohmann::ordered_json;

RenderedPrompt to_prompt(jinja::Text&& text) {
  RenderedPrompt prompt;
  prompt.untrusted = text.untrusted();
  prompt.text = std::move(text).take_bytes();
  return prompt;
}

class ParsedTemplate final : public ChatTemplate {
 public:
  ParsedTemplate(std::string source, const TemplateLimits& limits)
      : source_(std::move(source)), limits_(limits) {
    if (source_.size() > limits_.max_source_bytes)
      throw ResourceExhausted(fmt::format("chat template: {} bytes, at most {} are allowed",
                                          source_.size(), limits_.max_source_bytes));
    syntax_ = jinja::parse_template(source_, limits_.max_depth);
    traits_ = jinja::find_traits(syntax_, source_);
    traits_.wants_parts = !shows_content(false) && shows_content(true);
  }

  RenderedPrompt render(const ChatRequest& request) const override {
    using jinja::Conversation;
    Conversation conversation(request, traits_);
    // What a template cannot take is known only by trying: first as the request has it, then with
    // all system texts in one first message, then with tool arguments as JSON text.
    for (;;) {
      try {
        RenderedPrompt prompt = render_variables(conversation.variables());
        const std::string* lost = conversation.lost_system_text(prompt.text);
        if (lost && conversation.merge_system_messages()) continue;
        if (lost) log_warning("the chat template does not show the system message");
        return prompt;
      } catch (const jinja::TemplateRefusal&) {
        if (!conversation.merge_system_messages()) throw;
      } catch (const FormatError&) {
        if (!conversation.arguments_as_text()) throw;
      }
    }
  }

  RenderedPrompt render_raw(const Json& variables) const override {
    if (!variables.is_object())
      throw InvalidArgument("chat template: the variables must be a JSON object");
    return render_variables(variables);
  }

  const std::string& source() const override { return source_; }

 private:
  RenderedPrompt render_variables(const Json& variables) const {
    jinja::Interpreter interpreter(syntax_, limits_);
    return to_prompt(
        interpreter.render(variables, {"bos_token", "eos_token", "add_generation_prompt"}));
  }

  /// Whether a user's text, given as a string or as a list of parts, comes out. Some templates only
  /// take the second form and would silently drop the first.
  bool shows_content(bool as_parts) const {
    const std::string probe = "probe of the content";
    Json content = probe;
    if (as_parts) content = Json::array({{{"type", "text"}, {"text", probe}}});
    const Json variables = {
        {"messages", Json::array({{{"role", "user"}, {"content", std::move(content)}}})},
        {"add_generation_prompt", true},
        {"bos_token", ""},
        {"eos_token", ""}};
    try {
      TemplateLimits limits = limits_;
      limits.max_steps = std::min<uint64_t>(limits.max_steps, 100'000);
      limits.max_output_bytes = std::min<size_t>(limits.max_output_bytes, 1 << 20);
      jinja::Interpreter interpreter(syntax_, limits);
      const jinja::Text text = interpreter.render(variables, {});
      return text.view().find(probe) != std::string_view::npos;
    } catch (const Error&) {
      return false;  // a template that cannot render this says so when it is used
    }
  }

  std::string source_;
  TemplateLimits limits_;
  jinja::Syntax syntax_;
  jinja::TemplateTraits traits_;
};

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::parse(std::string source,
                                                        const TemplateLimits& limits) {
  return std::make_shared<ParsedTemplate>(std::move(source), limits);
}

}  // namespace ts
