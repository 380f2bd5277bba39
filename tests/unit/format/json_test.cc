#include "base/json.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/error_matchers.h"

namespace ts {
namespace {

using test::catch_error;
using ::testing::HasSubstr;
using ::testing::Not;

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(JsonTest, ParsesEveryKindOfValue) {
  const auto v = parse_json_limited(
      R"( {"a": [1, -2, 2.5, true, null], "b": {"c": "\u00e9\ud83d\ude00"}, "big": 18446744073709551615} )",
      "x");
  EXPECT_EQ(v["a"][1], -2);
  EXPECT_EQ(v["a"][2], 2.5);
  EXPECT_TRUE(v["a"][4].is_null());
  EXPECT_EQ(v["b"]["c"], "\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(v["big"].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(parse_json_limited("3", "x"), 3);
  EXPECT_EQ(parse_json_limited("[[1],[2,[3]],{\"k\":[{}]}]", "x").dump(),
            "[[1],[2,[3]],{\"k\":[{}]}]");
}

TEST(JsonTest, DepthIsBoundedWithThePlace) {
  EXPECT_EQ(parse_json_limited(nested(64), "x").size(), 1u);
  const auto e = catch_error([] { parse_json_limited(nested(65), "request"); });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, HasSubstr("request"));
  EXPECT_THAT(e.message, HasSubstr("64"));
  EXPECT_THAT(e.message, HasSubstr("line 1, column 65"));
  JsonLimits limits;
  limits.max_depth = 128;
  EXPECT_NO_THROW(parse_json_limited(nested(128), "x", limits));
  limits.max_depth = 129;
  EXPECT_EQ(catch_error([&] { parse_json_limited("1", "x", limits); }).code, ErrorCode::kInternal);
}

TEST(JsonTest, VeryDeepNestingNeitherOverflowsNorTakesLong) {
  for (const int depth : {3000, 100000, 5000000}) {
    EXPECT_EQ(catch_error([&] { parse_json_limited(nested(depth), "x"); }).code,
              ErrorCode::kFormat);
    std::string objects;
    for (int i = 0; i < std::min(depth, 100000); ++i)
      objects += "{\"a\":";
    EXPECT_EQ(catch_error([&] { parse_json_limited(objects, "x"); }).code, ErrorCode::kFormat);
  }
  // Brackets inside strings are no nesting.
  EXPECT_NO_THROW(parse_json_limited("\"" + std::string(1000, '[') + "\\\"[\"", "x"));
}

TEST(JsonTest, SyntaxErrorsNamePositionAndReasonWithoutEchoingTheInput) {
  const auto e = catch_error([] { parse_json_limited("{\"a\": 1,\n \"b\": secret}", "f.json"); });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, HasSubstr("f.json"));
  EXPECT_THAT(e.message, HasSubstr("line 2, column 7"));
  EXPECT_THAT(e.message, Not(HasSubstr("secret")));
  for (const char* bad : {"", " ", "{", "[1,]", "{\"a\"}", "tru", "1 2", "{} x", "'a'", "NaN",
                          "\"\xFF\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"", "\"\\ud800\"", "1e999",
                          "[1]/*c*/", "\"a\nb\"", "01", "+1"}) {
    EXPECT_EQ(catch_error([&] { parse_json_limited(bad, "x"); }).code, ErrorCode::kFormat) << bad;
  }
}

TEST(JsonTest, RepeatedKeysAreRefusedOnlyWhenAsked) {
  const std::string text = R"({"a": 1, "b": {"a": 2}, "a": 3})";
  EXPECT_EQ(parse_json_limited(text, "x")["a"], 3);
  JsonLimits limits;
  limits.refuse_duplicate_keys = true;
  EXPECT_THAT(catch_error([&] { parse_json_limited(text, "x", limits); }).message,
              HasSubstr("'a' occurs twice"));
  EXPECT_NO_THROW(parse_json_limited(R"({"a": 1, "b": {"a": 2}})", "x", limits));
}

TEST(JsonTest, SizeIsBounded) {
  JsonLimits limits;
  limits.max_bytes = 10;
  EXPECT_NO_THROW(parse_json_limited("\"12345678\"", "x", limits));
  EXPECT_THAT(catch_error([&] { parse_json_limited("\"123456789\"", "x", limits); }).message,
              HasSubstr("11 bytes"));
}

}  // namespace
}  // namespace ts
