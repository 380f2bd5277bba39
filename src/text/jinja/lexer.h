/// Splits a template into texts and the tokens of its tags, with Jinja's white-space control
/// (trim_blocks and lstrip_blocks on, keep_trailing_newline off).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax.h"

namespace ts::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,         // between tags
    kOutputBegin,  // {{
    kOutputEnd,    // }}
    kBlockBegin,   // {%
    kBlockEnd,     // %}
    kName,
    kInteger,
    kFloat,
    kString,  // text = value, escapes resolved
    kOperator,
    kEnd,
  };
  Kind kind;
  Position at;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

[[noreturn]] void syntax_error(Position at, std::string_view message);

/// Throws FormatError.
std::vector<Token> tokenize(std::string_view source);

}  // namespace ts::jinja
