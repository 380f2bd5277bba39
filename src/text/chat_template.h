/// Chat templates: a Jinja2 subset rendered without any access to files, code or attributes of the
/// host, with limits on output size, loop iterations and nesting.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace ts {

struct TemplateLimits {
  size_t max_source_bytes = size_t{1} << 20;
  size_t max_output_bytes = size_t{16} << 20;
  size_t max_value_bytes = size_t{32} << 20;  ///< held by the template's values at one time
  uint64_t max_steps = 20'000'000;            ///< evaluated nodes and loop iterations
  int max_depth = 200;                        ///< nesting of expressions, macros and blocks
};

struct RenderedPrompt {
  std::string text;
  /// Parts of `text` that came from the input (message contents, tools), not from the template.
  std::vector<ByteRange> untrusted;
};

struct ChatRequest {
  /// OpenAI-style messages: objects with role, content and further keys.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  ///< null = undefined
  bool add_generation_prompt = true;
  std::string bos_token, eos_token;
  /// Further variables (enable_thinking, ...). Unset ones are undefined.
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();
};

/// Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Parses the source. FormatError with line and column when it is not in the subset.
  static std::shared_ptr<const ChatTemplate> parse(std::string source,
                                                   const TemplateLimits& limits = {});
  virtual ~ChatTemplate() = default;

  /// Renders after normalising the request: tool-call arguments given as JSON text become objects,
  /// roles and positions of system messages that the template itself would refuse are adapted
  /// (see docs/troubleshooting.md).
  /// Errors: InvalidArgument (raise_exception of the template, bad request), ResourceExhausted
  /// (a limit), FormatError (a template error at run time, with its line).
  virtual RenderedPrompt render(const ChatRequest& request) const = 0;
  /// Renders with exactly these variables and nothing adapted (tests, other uses of templates).
  virtual RenderedPrompt render_raw(const nlohmann::ordered_json& variables) const = 0;
  virtual const std::string& source() const = 0;
};

}  // namespace ts
