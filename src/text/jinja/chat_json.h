/// Conversations as JSON text.
#pragma once

#include <cstddef>
#include <string_view>

#include <nlohmann/json.hpp>

#include "text/chat_template.h"

namespace ts {

struct ChatJsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 64;        ///< arrays and objects inside each other
  size_t max_keys = 10'000;  ///< of one object
};

/// Parses JSON keeping the order of keys, which templates show. `name` opens every message.
/// Throws FormatError with line and column on bad syntax, InvalidArgument on a broken limit or a
/// key given twice.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view name,
                                          const ChatJsonLimits& limits = {});

/// A chat request: either an array of messages, or an object with
///   messages               array (required)
///   tools                  array or null
///   add_generation_prompt  bool
///   chat_template_kwargs   object: further template variables
///   reasoning_effort       string: "none" means enable_thinking = false, others are passed on
/// Errors as above; InvalidArgument names an unknown or ill-typed field. The token texts are left
/// empty, and messages are checked when they are rendered.
ChatRequest parse_chat_json(std::string_view text, const ChatJsonLimits& limits = {});

}  // namespace ts
