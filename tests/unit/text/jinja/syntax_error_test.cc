#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "text/chat_template.h"

namespace ts {
namespace {

std::string message(const std::string& source) {
  try {
    ChatTemplate::parse(source)->render_raw(nlohmann::ordered_json::object());
  } catch (const FormatError& e) {
    return e.what();
  }
  return "no error";
}

TEST(TemplateSyntax, ErrorsNameLineColumnAndWhatWasExpected) {
  EXPECT_EQ(
      message("ab\n{{ 1 + }}"),
      "chat template, line 2, column 8: found the end of the tag (}}), expected an expression");
  EXPECT_EQ(message("{% if x %}\n\nabc"),
            "chat template, line 1, column 1: the block is not closed; expected {% endif %}");
  EXPECT_EQ(message("é{% nope %}"), "chat template, line 1, column 2: unknown tag 'nope'");
  EXPECT_EQ(message("{{ x | nope }}"), "chat template, line 1, column 8: unknown filter 'nope'");
  EXPECT_EQ(message("{{ x is nope }}"), "chat template, line 1, column 9: unknown test 'nope'");
  EXPECT_EQ(message("{{ nope() }}"), "chat template, line 1, column 8: 'nope' is undefined");
  EXPECT_EQ(message("{{ 'abc }}"), "chat template, line 1, column 4: the string is not closed");
  EXPECT_EQ(message("x\n {# y"),
            "chat template, line 2, column 2: the comment is not closed; expected #}");
  EXPECT_EQ(message("{{ x"), "chat template, line 1, column 1: the tag is not closed; expected }}");
  EXPECT_EQ(message("{% for x in y recursive %}{% endfor %}"),
            "chat template, line 1, column 15: recursive loops are not supported; use a macro");
  EXPECT_EQ(message("{% include 'x' %}"),
            "chat template, line 1, column 1: the tag 'include' is not supported: a chat template "
            "stands alone and reads no other files");
  EXPECT_EQ(message("ok \xff"), "chat template: byte 3 is not UTF-8");
  EXPECT_EQ(message("{{ '\\ud800' }}"),
            "chat template, line 1, column 5: \\u needs 4 hexadecimal digits of a valid character");
}

TEST(TemplateSyntax, EveryPrefixOfATemplateParsesOrFails) {
  const std::string source =
      "{%- macro m(a, b='x') -%}{{ a ~ b[1:] | upper }}{%- endmacro %}\n{# c #}{% for x, y in "
      "d.items() "
      "if x is not none %}{% set q.z = {'a': [1, 2.5e3, (3,)], \"b\": -x ** 2 // 3} %}{% raw "
      "%}{{{% "
      "endraw %}{% else %}{% break %}{% endfor %}";
  for (size_t n = 0; n < source.size(); ++n) {
    try {
      ChatTemplate::parse(source.substr(0, n));
    } catch (const FormatError&) {
    }
  }
}

}  // namespace
}  // namespace ts
