#include "format/metadata.h"

#include <cmath>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/quote_text.h"
#include "support/error_matchers.h"

namespace ts {
namespace {

using test::catch_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MetadataTest, KeepsOrderReplacesAndErases) {
  Metadata m("f.gguf");
  m.set("a", MetadataValue::u32(1));
  m.set("b", MetadataValue::u32(2));
  m.set("c", MetadataValue::u32(3));
  m.set("a", MetadataValue::string("x"));
  ASSERT_EQ(m.size(), 3u);
  EXPECT_EQ(m.entries()[0].first, "a");
  EXPECT_EQ(m.get_string("a"), "x");
  m.erase("a");
  m.erase("nothing");
  ASSERT_EQ(m.size(), 2u);
  EXPECT_FALSE(m.contains("a"));
  EXPECT_EQ(m.get_int("b", 0, 9), 2);
  EXPECT_EQ(m.get_int("c", 0, 9), 3);
  EXPECT_EQ(m.find("d"), nullptr);
}

TEST(MetadataTest, IntegersOfAnyWidthAreRangeChecked) {
  Metadata m("f.gguf");
  m.set("u8", {MetadataType::kUint8, uint64_t{7}});
  m.set("i64", {MetadataType::kInt64, int64_t{-7}});
  m.set("huge", MetadataValue::u64(UINT64_MAX));
  m.set("float", MetadataValue::f32(7));
  m.set("text", MetadataValue::string("7"));
  EXPECT_EQ(m.get_int("u8", 0, 7), 7);
  EXPECT_EQ(m.get_int("i64", -7, 0), -7);
  EXPECT_EQ(m.get_int("absent", 0, 1), std::nullopt);
  const auto range = catch_error([&] { m.get_int("u8", 0, 6); });
  EXPECT_EQ(range.code, ErrorCode::kFormat);
  EXPECT_THAT(range.message, AllOf(HasSubstr("f.gguf"), HasSubstr("'u8'"), HasSubstr("0 to 6")));
  EXPECT_EQ(catch_error([&] { m.get_int("i64", 0, 9); }).code, ErrorCode::kFormat);
  EXPECT_EQ(catch_error([&] { m.get_int("huge", 0, INT64_MAX); }).code, ErrorCode::kFormat);
  EXPECT_THAT(catch_error([&] { m.get_int("float", 0, 9); }).message,
              AllOf(HasSubstr("f32"), HasSubstr("an integer")));
  EXPECT_EQ(catch_error([&] { m.get_int("text", 0, 9); }).code, ErrorCode::kFormat);
}

TEST(MetadataTest, FloatsMustBeFinite) {
  Metadata m("f.gguf");
  m.set("f", MetadataValue::f32(0.5F));
  m.set("i", MetadataValue::i32(-3));
  m.set("nan", MetadataValue::f32(std::nanf("")));
  m.set("inf", MetadataValue::f32(std::numeric_limits<float>::infinity()));
  m.set("b", MetadataValue::boolean(true));
  EXPECT_EQ(m.get_float("f"), 0.5);
  EXPECT_EQ(m.get_float("i"), -3.0);
  for (const char* key : {"nan", "inf", "b"})
    EXPECT_EQ(catch_error([&] { m.get_float(key); }).code, ErrorCode::kFormat) << key;
}

TEST(MetadataTest, ArraysKeepTheirElementTypes) {
  Metadata m("f.gguf");
  m.set("s", MetadataValue::strings({"a", std::string("b\0c", 3)}));
  m.set("i", MetadataValue::i32_array({1, -2, 3}));
  m.set("u",
        {MetadataType::kArray, MetadataArray{MetadataType::kUint16, std::vector<uint64_t>{4, 5}}});
  m.set("f", MetadataValue::f32_array({1.5F}));
  m.set("d",
        {MetadataType::kArray, MetadataArray{MetadataType::kFloat64, std::vector<double>{1e300}}});
  m.set("b",
        {MetadataType::kArray, MetadataArray{MetadataType::kBool, std::vector<bool>{true, false}}});
  EXPECT_EQ(m.get_strings("s")->at(1).size(), 3u);
  EXPECT_EQ(m.get_strings("absent"), nullptr);
  EXPECT_THAT(*m.get_ints("i", -9, 9), ::testing::ElementsAre(1, -2, 3));
  EXPECT_THAT(*m.get_ints("u", 0, 9), ::testing::ElementsAre(4, 5));
  EXPECT_EQ(catch_error([&] { m.get_ints("i", 0, 9); }).code, ErrorCode::kFormat);
  EXPECT_EQ(catch_error([&] { m.get_ints("f", 0, 9); }).code, ErrorCode::kFormat);
  EXPECT_THAT(*m.get_floats("f"), ::testing::ElementsAre(1.5F));
  EXPECT_EQ(catch_error([&] { m.get_floats("d"); }).code, ErrorCode::kFormat);
  EXPECT_THAT(*m.get_bools("b"), ::testing::ElementsAre(true, false));
  EXPECT_THAT(catch_error([&] { m.get_strings("i"); }).message,
              HasSubstr("array of i32 [3], expected an array of strings"));
  EXPECT_EQ(catch_error([&] { m.get_strings("f"); }).code, ErrorCode::kFormat);
}

TEST(QuoteTextTest, IsSafeToPrintAndBounded) {
  EXPECT_EQ(quote_text("blk.0"), "'blk.0'");
  EXPECT_EQ(quote_text("a\x1B[31m\n"), "'a\\x1b[31m\\x0a'");
  EXPECT_EQ(quote_text("\xC3\xA9\xFF"), "'\xC3\xA9\\xff'");
  EXPECT_EQ(quote_text("\xC2\x9B"), "'\\xc2\\x9b'");
  EXPECT_EQ(quote_text("abcdef", 3), "'abc'...");
  EXPECT_EQ(find_invalid_utf8("ok\xF4\x90\x80\x80"), 2u);
  EXPECT_EQ(find_invalid_utf8("\xF0\x9F\x98\x80"), std::string_view::npos);
}

}  // namespace
}  // namespace ts
