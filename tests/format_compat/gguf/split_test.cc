// Models split into several GGUF files.

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
using test::GgufBuilder;
using test::test_bytes;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SplitTest : public ::testing::Test {
 protected:
  static GgufBuilder part(uint16_t no, uint16_t count, int32_t n_tensors) {
    GgufBuilder b;
    if (no == 0) b.kv_string("general.architecture", "llama");
    b.kv<uint16_t>("split.no", 2, no).kv<uint16_t>("split.count", 2, count);
    b.kv<int32_t>("split.tensors.count", 5, n_tensors);
    const std::string name = "t" + std::to_string(no);
    b.tensor(name + ".a", {8}, 0, test_bytes(32, no)).tensor(name + ".b", {4}, 0, test_bytes(16));
    return b;
  }
  std::filesystem::path name(int number, int count = 3) const {
    char text[64];
    std::snprintf(text, sizeof(text), "my model-%05d-of-%05d.gguf", number, count);
    return dir_ / text;
  }
  void write_three() {
    for (uint16_t i = 0; i < 3; ++i)
      test::write_file(name(i + 1), part(i, 3, 6).build());
  }
  test::Thrown fails(const std::filesystem::path& path) {
    return test::catch_error([&] { GgufFile::open(path); });
  }
  test::TempDir dir_;
};

TEST_F(SplitTest, TheFirstPartOpensAll) {
  write_three();
  const auto file = GgufFile::open(name(1));
  ASSERT_EQ(file->tensors().size(), 6u);
  EXPECT_EQ(file->parts().size(), 3u);
  EXPECT_EQ(file->metadata().get_string("general.architecture"), "llama");
  const TensorEntry* t = file->find("t2.a");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->file, name(3));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(t->data.data()), t->data.size()),
            test_bytes(32, 2));
  uint64_t total = 0;
  for (int i = 1; i <= 3; ++i)
    total += std::filesystem::file_size(name(i));
  EXPECT_EQ(file->file_bytes(), total);
}

TEST_F(SplitTest, ALaterPartNamesTheFirst) {
  write_three();
  const auto e = fails(name(2));
  EXPECT_EQ(e.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(e.message, AllOf(HasSubstr("part 2 of 3"), HasSubstr("00001-of-00003")));
}

TEST_F(SplitTest, MissingPartsAreListed) {
  write_three();
  std::filesystem::remove(name(2));
  const auto e = fails(name(1));
  EXPECT_EQ(e.code, ErrorCode::kIo);
  EXPECT_THAT(e.message, AllOf(HasSubstr("00002-of-00003"), HasSubstr("1 of the 3")));
}

TEST_F(SplitTest, ADamagedPartIsNamed) {
  write_three();
  std::string bytes = test::read_file(name(3));
  test::write_file(name(3), bytes.substr(0, bytes.size() - 40));
  EXPECT_THAT(fails(name(1)).message, AllOf(HasSubstr("00003-of-00003"), HasSubstr("t2.")));
}

TEST_F(SplitTest, MixedUpPartsAreRefused) {
  write_three();
  test::write_file(name(2), part(2, 3, 6).build());
  EXPECT_THAT(fails(name(1)).message, AllOf(HasSubstr("part 3 of 3"), HasSubstr("mixed up")));
  test::write_file(name(2), part(1, 4, 6).build());
  EXPECT_THAT(fails(name(1)).message, HasSubstr("part 2 of 4"));
  GgufBuilder plain;
  plain.tensor("x", {8}, 0, test_bytes(32));
  test::write_file(name(2), plain.build());
  EXPECT_THAT(fails(name(1)).message, HasSubstr("mixed up"));
}

TEST_F(SplitTest, RepeatedNamesAndWrongTotalsAreRefused) {
  write_three();
  GgufBuilder repeated = part(1, 3, 6);
  repeated.tensors[0].name = "t0.a";
  test::write_file(name(2), repeated.build());
  EXPECT_THAT(fails(name(1)).message, AllOf(HasSubstr("'t0.a'"), HasSubstr("00001-of-00003")));
  GgufBuilder more = part(1, 3, 6);
  more.tensor("extra", {8}, 0, test_bytes(32));
  test::write_file(name(2), more.build());
  EXPECT_THAT(fails(name(1)).message, AllOf(HasSubstr("7 tensors"), HasSubstr("says 6")));
}

TEST_F(SplitTest, NamesMustFitTheMetadata) {
  test::write_file(dir_ / "renamed.gguf", part(0, 3, 6).build());
  EXPECT_THAT(fails(dir_ / "renamed.gguf").message, HasSubstr("-00001-of-00003.gguf"));
  test::write_file(name(2), part(0, 3, 6).build());
  EXPECT_EQ(fails(name(2)).code, ErrorCode::kFormat);
  test::write_file(name(1, 4), part(0, 3, 6).build());
  EXPECT_EQ(fails(name(1, 4)).code, ErrorCode::kFormat);
}

TEST_F(SplitTest, BadSplitKeysAreRefused) {
  const auto message = [](GgufBuilder& b) {
    const std::string bytes = b.build();
    return test::catch_error([&] { GgufFile::parse(as_bytes(bytes), "m.gguf"); }).message;
  };
  GgufBuilder no_number;
  no_number.kv<uint16_t>("split.count", 2, 3);
  EXPECT_THAT(message(no_number), HasSubstr("split.no"));
  GgufBuilder beyond;
  beyond.kv<uint16_t>("split.count", 2, 3).kv<uint16_t>("split.no", 2, 3);
  EXPECT_THAT(message(beyond), HasSubstr("split.no"));
  GgufBuilder text;
  text.kv_string("split.count", "3");
  EXPECT_THAT(message(text), HasSubstr("split.count"));
  GgufBuilder many;
  many.kv<uint16_t>("split.count", 2, 65535).kv<uint16_t>("split.no", 2, 0);
  EXPECT_THAT(message(many), HasSubstr("split.count"));
  GgufBuilder in_memory = part(0, 3, 6);
  EXPECT_THAT(message(in_memory), HasSubstr("one part of a split model"));
  GgufBuilder whole;
  whole.kv<uint16_t>("split.count", 2, 1).kv<uint16_t>("split.no", 2, 0);
  const std::string bytes = whole.build();
  EXPECT_NO_THROW(GgufFile::parse(as_bytes(bytes), "m.gguf"));
}

}  // namespace
}  // namespace ts
