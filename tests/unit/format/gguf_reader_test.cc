#include <limits>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::as_bytes;
using test::catch_error;
using test::GgufBuilder;
using test::test_bytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// The parsed file; it keeps its bytes alive.
std::shared_ptr<const GgufFile> parse(std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  const auto file = GgufFile::parse(as_bytes(*kept), "m.gguf");
  return {file.get(), [kept, file](const GgufFile*) {}};
}

TEST(GgufReaderTest, ReadsEveryValueType) {
  GgufBuilder b;
  b.kv<uint8_t>("u8", 0, 255)
      .kv<int8_t>("i8", 1, -128)
      .kv<uint16_t>("u16", 2, 65535)
      .kv<int16_t>("i16", 3, -32768)
      .kv<uint32_t>("u32", 4, UINT32_MAX)
      .kv<int32_t>("i32", 5, INT32_MIN)
      .kv<float>("f32", 6, 0.25F)
      .kv_bool("yes", true)
      .kv_bool("no", false)
      .kv_string("s", std::string("a\0\xFF", 3))
      .kv<uint64_t>("u64", 10, UINT64_MAX)
      .kv<int64_t>("i64", 11, INT64_MIN)
      .kv<double>("f64", 12, -1e300)
      .kv_strings("tokens", {"<s>", "", std::string("\0", 1)})
      .kv_array<uint8_t>("a_u8", 0, {0, 255})
      .kv_array<int8_t>("a_i8", 1, {-1, 1})
      .kv_array<uint16_t>("a_u16", 2, {65535})
      .kv_array<int16_t>("a_i16", 3, {-2})
      .kv_array<uint32_t>("a_u32", 4, {UINT32_MAX})
      .kv_array<int32_t>("a_i32", 5, {1, -2, 3})
      .kv_array<float>("a_f32", 6, {1.5F, -2})
      .kv_array<uint8_t>("a_bool", 7, {1, 0, 1})
      .kv_array<uint64_t>("a_u64", 10, {UINT64_MAX})
      .kv_array<int64_t>("a_i64", 11, {INT64_MIN})
      .kv_array<double>("a_f64", 12, {0.1})
      .kv_array<int32_t>("empty", 5, {});
  const auto file = parse(b.build());
  const Metadata& m = file->metadata();
  ASSERT_EQ(m.size(), 26u);
  EXPECT_EQ(m.entries()[0].first, "u8");
  EXPECT_EQ(m.get_int("u8", 0, 255), 255);
  EXPECT_EQ(m.get_int("i8", -128, 0), -128);
  EXPECT_EQ(m.get_int("u16", 0, 65535), 65535);
  EXPECT_EQ(m.get_int("i16", -32768, 0), -32768);
  EXPECT_EQ(m.get_int("u32", 0, UINT32_MAX), UINT32_MAX);
  EXPECT_EQ(m.get_int("i32", INT32_MIN, 0), INT32_MIN);
  EXPECT_EQ(m.get_float("f32"), 0.25);
  EXPECT_EQ(m.get_bool("yes"), true);
  EXPECT_EQ(m.get_bool("no"), false);
  EXPECT_EQ(m.get_string("s"), std::string("a\0\xFF", 3));
  EXPECT_EQ(std::get<uint64_t>(m.find("u64")->value), UINT64_MAX);
  EXPECT_EQ(m.get_int("i64", INT64_MIN, 0), INT64_MIN);
  EXPECT_EQ(m.get_float("f64"), -1e300);
  EXPECT_EQ(m.get_strings("tokens")->at(2), std::string("\0", 1));
  EXPECT_THAT(*m.get_ints("a_u8", 0, 255), ::testing::ElementsAre(0, 255));
  EXPECT_THAT(*m.get_ints("a_i8", -1, 1), ::testing::ElementsAre(-1, 1));
  EXPECT_THAT(*m.get_ints("a_u16", 0, 65535), ::testing::ElementsAre(65535));
  EXPECT_THAT(*m.get_ints("a_i16", -2, 0), ::testing::ElementsAre(-2));
  EXPECT_THAT(*m.get_ints("a_u32", 0, UINT32_MAX), ::testing::ElementsAre(UINT32_MAX));
  EXPECT_THAT(*m.get_ints("a_i32", -2, 3), ::testing::ElementsAre(1, -2, 3));
  EXPECT_THAT(*m.get_floats("a_f32"), ::testing::ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(*m.get_bools("a_bool"), ::testing::ElementsAre(true, false, true));
  EXPECT_THAT(*m.get_ints("a_i64", INT64_MIN, 0), ::testing::ElementsAre(INT64_MIN));
  EXPECT_EQ(describe_type(*m.find("a_u64")), "array of u64 [1]");
  EXPECT_THAT(*m.get_floats("a_f64"), ::testing::ElementsAre(0.1F));
  EXPECT_EQ(m.get_ints("empty", 0, 0)->size(), 0u);
}

TEST(GgufReaderTest, FindsTensorsAndTheirBytes) {
  GgufBuilder b;
  b.kv_string("general.architecture", "llama");
  b.tensor("a", {3}, 0, test_bytes(12, 1)).tensor("b", {64, 2, 1, 3}, 2, test_bytes(216, 2));
  const std::string bytes = b.build();
  const auto file = parse(bytes);
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 32u);
  EXPECT_EQ(file->file_bytes(), bytes.size());
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorEntry* t = file->find("b");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->type, TypeId::kQ4_0);
  EXPECT_EQ(t->shape, Shape({64, 2, 1, 3}));
  EXPECT_EQ(t->shape.n_dims, 4);
  EXPECT_EQ(t->bytes, 216u);
  EXPECT_EQ(t->file_offset % 32, 0u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(t->data.data()), t->data.size()),
            test_bytes(216, 2));
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(GgufReaderTest, AcceptsVersion2AndOtherAlignments) {
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    GgufBuilder b;
    b.version = 2;
    b.alignment = alignment;
    b.kv_u32("general.alignment", alignment);
    b.tensor("a", {3}, 0, test_bytes(12)).tensor("b", {1}, 0, test_bytes(4));
    const auto file = parse(b.build());
    EXPECT_EQ(file->version(), 2u);
    EXPECT_EQ(file->alignment(), alignment);
    EXPECT_EQ(file->find("b")->file_offset % alignment, 0u);
  }
}

TEST(GgufReaderTest, TheLastTensorNeedsNoPadding) {
  GgufBuilder b;
  b.pad_last = false;
  b.tensor("a", {3}, 0, test_bytes(12));
  EXPECT_EQ(parse(b.build())->tensors().size(), 1u);
}

TEST(GgufReaderTest, AFileOfMetadataAloneMayEndWithTheHeader) {
  GgufBuilder b;
  b.kv_u32("k", 1);
  std::string bytes = b.build();
  bytes.resize(24 + 8 + 1 + 4 + 4);
  EXPECT_EQ(parse(bytes)->metadata().size(), 1u);
}

TEST(GgufReaderTest, UnknownTypesAreListedWithoutData) {
  GgufBuilder b;
  b.tensor("known", {8}, 0, test_bytes(32)).tensor("odd", {7, 3}, 199, test_bytes(40));
  b.tensor("after", {4}, 0, test_bytes(16)).tensor("i2_s", {6912, 1}, 36, test_bytes(64));
  const auto file = parse(b.build());
  const TensorEntry* odd = file->find("odd");
  ASSERT_NE(odd, nullptr);
  EXPECT_EQ(static_cast<uint32_t>(odd->type), 199u);
  EXPECT_EQ(odd->bytes, 0u);
  EXPECT_TRUE(odd->data.empty());
  EXPECT_EQ(file->find("after")->data.size(), 16u);
  EXPECT_EQ(file->find("i2_s")->bytes, 0u);
}

TEST(GgufReaderTest, TensorsMayLieInAnyOrder) {
  GgufBuilder b;
  b.tensor("a", {8}, 0, test_bytes(32)).tensor("b", {8}, 0, test_bytes(32, 2));
  b.tensors[0].offset = 32;
  b.tensors[1].offset = 0;
  const auto file = parse(b.build());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->find("a")->data.data()), 32),
            test_bytes(32, 2));
}

TEST(GgufReaderTest, PlaceholderNamesGetANote) {
  GgufBuilder b;
  b.kv_string("general.name", "Hf");
  const auto file = parse(b.build());
  ASSERT_EQ(file->notes().size(), 1u);
  EXPECT_THAT(file->notes()[0], HasSubstr("placeholder"));
}

TEST(GgufReaderTest, LimitsAreEnforced) {
  GgufBuilder b;
  b.kv_string("a", "12345").kv_array<uint8_t>("n", 0, {1, 2, 3}).tensor("t", {1}, 0, "abcd");
  b.tensor("u", {1}, 0, "abcd");
  const std::string bytes = b.build();
  const auto fails = [&](GgufLimits limits) {
    return catch_error([&] { GgufFile::parse(as_bytes(bytes), "m.gguf", limits); });
  };
  EXPECT_NO_THROW(GgufFile::parse(as_bytes(bytes), "m.gguf"));
  GgufLimits limits;
  limits.max_metadata_pairs = 1;
  EXPECT_THAT(fails(limits).message, HasSubstr("metadata count"));
  limits = {};
  limits.max_tensors = 1;
  EXPECT_THAT(fails(limits).message, HasSubstr("tensor count"));
  limits = {};
  limits.max_string_bytes = 4;
  EXPECT_THAT(fails(limits).message, AllOf(HasSubstr("'a'"), HasSubstr("5 bytes")));
  limits = {};
  limits.max_array_elems = 2;
  EXPECT_THAT(fails(limits).message, AllOf(HasSubstr("'n'"), HasSubstr("3 elements")));
  limits = {};
  limits.max_metadata_memory_bytes = 23;
  EXPECT_THAT(fails(limits).message, HasSubstr("memory"));
}

TEST(GgufReaderTest, AFileShortenedWhileMappedIsNoticed) {
  const test::TempDir dir;
  GgufBuilder b;
  b.tensor("a", {4096}, 0, test_bytes(16384));
  const auto path = dir / "m.gguf";
  test::write_file(path, b.build());
  const auto file = GgufFile::open(path);
  EXPECT_NO_THROW(file->check_not_truncated());
  std::filesystem::resize_file(path, 5000);
  const auto e = catch_error([&] { file->check_not_truncated(); });
  EXPECT_EQ(e.code, ErrorCode::kIo);
  EXPECT_THAT(e.message, AllOf(HasSubstr("m.gguf"), HasSubstr("shrank"), HasSubstr("5000")));
}

TEST(GgufReaderTest, PathsMayHoldSpacesAndAnyCharacters) {
  const test::TempDir dir;
  const auto path = dir /
                    "m\xC3\xB6"
                    "dell \xE6\xA8\xA1.gguf";
  GgufBuilder b;
  b.tensor("a", {1}, 0, test_bytes(4));
  test::write_file(path, b.build());
  EXPECT_EQ(GgufFile::open(path)->path(), path);
}

}  // namespace
}  // namespace ts
