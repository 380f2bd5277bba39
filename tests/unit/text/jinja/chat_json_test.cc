#include "text/jinja/chat_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

namespace ts {
namespace {

using testing::HasSubstr;

std::string failure(const std::string& text, const ChatJsonLimits& limits = {}) {
  try {
    parse_chat_json(text, limits);
  } catch (const Error& e) {
    return std::string(e.kind().name) + ": " + e.what();
  }
  return "accepted";
}

TEST(ChatJson, ArrayOrObject) {
  const ChatRequest plain = parse_chat_json(R"([{"role":"user","content":"x"}])");
  EXPECT_EQ(plain.messages.size(), 1u);
  EXPECT_TRUE(plain.tools.is_null());
  EXPECT_TRUE(plain.add_generation_prompt);
  const ChatRequest full = parse_chat_json(
      R"({"messages":[],"tools":[{"z":1,"a":2}],"add_generation_prompt":false,
          "chat_template_kwargs":{"k":1},"reasoning_effort":"low"})");
  EXPECT_EQ(full.tools.dump(), R"([{"z":1,"a":2}])");  // the order of keys is kept
  EXPECT_FALSE(full.add_generation_prompt);
  EXPECT_EQ(full.extra.dump(), R"({"k":1,"reasoning_effort":"low"})");
  EXPECT_EQ(parse_chat_json(R"({"messages":[],"reasoning_effort":"none"})").extra.dump(),
            R"({"enable_thinking":false})");
}

TEST(ChatJson, ErrorsNameFieldOrPlace) {
  EXPECT_THAT(failure("[{\"role\":\n}]"), HasSubstr("chat JSON, line 2, column 1: "));
  EXPECT_THAT(failure(""), HasSubstr("format_error: chat JSON, line 1"));
  EXPECT_THAT(failure("[] []"), HasSubstr("format_error"));
  EXPECT_THAT(failure("[\"\xff\"]"), HasSubstr("format_error"));
  EXPECT_THAT(failure("[1e999]"), HasSubstr("format_error"));
  EXPECT_THAT(failure("5"), HasSubstr("found number"));
  EXPECT_THAT(failure("{}"), HasSubstr("messages is missing"));
  EXPECT_THAT(failure(R"({"messages":5})"), HasSubstr("messages: found number, expected an array"));
  EXPECT_THAT(failure(R"({"messages":[],"tools":{}})"), HasSubstr("tools: found object"));
  EXPECT_THAT(failure(R"({"messages":[],"add_generation_prompt":1})"), HasSubstr("true or false"));
  EXPECT_THAT(failure(R"({"messages":[],"chat_template_kwargs":[]})"), HasSubstr("an object"));
  EXPECT_THAT(failure(R"({"messages":[],"reasoning_effort":1})"), HasSubstr("a string"));
  EXPECT_THAT(failure(R"({"messages":[],"temprature":1})"),
              HasSubstr("unknown field 'temprature'"));
  EXPECT_THAT(failure(R"([{"role":"user","role":"system"}])"), HasSubstr("'role' is given twice"));
}

TEST(ChatJson, LimitsHold) {
  EXPECT_THAT(failure(std::string(1'000'000, '[')), HasSubstr("nested deeper than 64 levels"));
  std::string deep_objects;
  for (int i = 0; i < 100'000; ++i)
    deep_objects += R"({"a":)";
  EXPECT_THAT(failure(deep_objects), HasSubstr("nested deeper than 64 levels"));
  ChatJsonLimits limits;
  limits.max_bytes = 10;
  EXPECT_THAT(failure("[          ]", limits), HasSubstr("at most 10"));
  std::string keys = "[{\"k\":0";
  for (int i = 0; i < 200'000; ++i)
    keys += ",\"" + std::to_string(i) + "\":0";
  EXPECT_THAT(failure(keys + "}]"), HasSubstr("more than 10000 keys"));
}

}  // namespace
}  // namespace ts
