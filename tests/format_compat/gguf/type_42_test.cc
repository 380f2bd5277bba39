// Type 42 has two layouts in the wild; the reader decides by where the tensors lie.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"

namespace ts {
namespace {

using test::as_bytes;
using test::GgufBuilder;
using test::test_bytes;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kType42 = 42;

uint64_t bytes_of(bool legacy, uint64_t n) {
  return legacy ? n / 128 * 34 : n / 64 * 18;
}

/// Adds a {width, rows} tensor of type 42.
void add(GgufBuilder& b, const std::string& name, bool legacy, uint64_t width, uint64_t rows) {
  b.tensor(name, {width, rows}, kType42, test_bytes(bytes_of(legacy, width * rows)));
}

std::shared_ptr<const GgufFile> parse(const std::string& bytes) {
  return GgufFile::parse(as_bytes(bytes), "m.gguf");
}

TEST(Type42Test, DecidedByTheTensorsThatFollow) {
  for (const bool legacy : {false, true}) {
    GgufBuilder b;
    add(b, "output.weight", legacy, 256, 20);
    b.tensor("output_norm.weight", {256}, 0, test_bytes(1024));
    add(b, "blk.0.attn_q.weight", legacy, 128, 64);
    add(b, "blk.0.attn_k.weight", legacy, 128, 64);
    const std::string bytes = b.build();
    const auto file = parse(bytes);
    const TensorEntry* t = file->find("output.weight");
    EXPECT_EQ(t->type, legacy ? TypeId::kPQ2_0 : TypeId::kQ2_0);
    EXPECT_EQ(t->bytes, bytes_of(legacy, 256 * 20));
    EXPECT_EQ(file->find("blk.0.attn_k.weight")->bytes, bytes_of(legacy, 128 * 64));
    ASSERT_EQ(file->notes().size(), legacy ? 1u : 0u);
    if (!legacy) continue;
    EXPECT_THAT(file->notes()[0], AllOf(HasSubstr("128"), HasSubstr("3 tensors")));
  }
}

TEST(Type42Test, TheLargeTensorOfTheRealFiles) {
  // 5120 x 248320: the next tensor lies at 337715200 (groups of 128) or 357580800 (of 64).
  EXPECT_EQ(bytes_of(true, 5120ull * 248320), 337715200u);
  EXPECT_EQ(bytes_of(false, 5120ull * 248320), 357580800u);
}

TEST(Type42Test, ALastTensorIsDecidedByTheEndOfTheFile) {
  for (const bool legacy : {false, true}) {
    for (const bool padded : {false, true}) {
      GgufBuilder b;
      b.pad_last = padded;
      b.tensor("norm", {4}, 0, test_bytes(16));
      add(b, "w", legacy, 128, 15);
      const std::string bytes = b.build();
      EXPECT_EQ(parse(bytes)->find("w")->type, legacy ? TypeId::kPQ2_0 : TypeId::kQ2_0);
    }
  }
}

TEST(Type42Test, WidthsThatOnlyOneLayoutDividesDecide) {
  GgufBuilder b;
  add(b, "w", false, 576, 1);  // a multiple of 64, not of 128
  const std::string bytes = b.build();
  EXPECT_EQ(parse(bytes)->find("w")->type, TypeId::kQ2_0);
}

TEST(Type42Test, WithoutEvidenceItIsRefusedNotGuessed) {
  // 36 or 34 bytes, both padded to 64.
  GgufBuilder b;
  add(b, "w", false, 128, 1);
  b.tensor("n", {4}, 0, test_bytes(16));
  const std::string both = b.build();
  const auto e = test::catch_error([&] { parse(both); });
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("'w'"), HasSubstr("legacy"), HasSubstr("both")));

  GgufBuilder c;
  add(c, "w", false, 128, 64);
  c.tensor("n", {4}, 0, test_bytes(16));
  c.tensors[1].offset = bytes_of(false, 128 * 64) + 64;
  std::string neither = c.build();
  neither.append(64, '\0');
  const auto f = test::catch_error([&] { parse(neither); });
  EXPECT_EQ(f.code, ErrorCode::kFormat);
  EXPECT_THAT(f.message, AllOf(HasSubstr("legacy"), HasSubstr("neither"), Not(HasSubstr("'n'"))));

  GgufBuilder d;
  add(d, "w", false, 128, 64);
  const std::string trailing = d.build() + std::string(320, '\0');
  EXPECT_THAT(test::catch_error([&] { parse(trailing); }).message, HasSubstr("legacy"));
}

TEST(Type42Test, MixedLayoutsInOneFileAreRefused) {
  GgufBuilder b;
  add(b, "a", false, 128, 64);
  add(b, "b", true, 128, 64);
  b.tensor("n", {4}, 0, test_bytes(16));
  const std::string bytes = b.build();
  EXPECT_EQ(test::catch_error([&] { parse(bytes); }).code, ErrorCode::kFormat);
}

TEST(Type42Test, UnknownTypesBetweenDoNotHideTheEvidence) {
  for (const bool legacy : {false, true}) {
    GgufBuilder b;
    b.tensor("odd", {7}, 199, test_bytes(70));
    add(b, "w", legacy, 128, 64);
    b.tensor("n", {4}, 0, test_bytes(16));
    const std::string bytes = b.build();
    EXPECT_EQ(parse(bytes)->find("w")->type, legacy ? TypeId::kPQ2_0 : TypeId::kQ2_0);
  }
}

TEST(Type42Test, FileTypeIsNoEvidence) {
  for (const bool legacy : {false, true}) {
    for (const uint32_t file_type : {41u, 128u, 141u}) {
      GgufBuilder b;
      b.kv_u32("general.file_type", file_type);
      add(b, "w", legacy, 128, 64);
      b.tensor("n", {4}, 0, test_bytes(16));
      const std::string bytes = b.build();
      EXPECT_EQ(parse(bytes)->find("w")->type, legacy ? TypeId::kPQ2_0 : TypeId::kQ2_0);
    }
  }
}

TEST(Type42Test, TheLayoutWithTheScaleLastIsRefusedByName) {
  for (const bool by_version : {false, true}) {
    GgufBuilder b;
    b.kv_string(by_version ? "general.quantization_version" : "oxibonsai.quant_format",
                "TQ2_0_G128");
    add(b, "w", true, 128, 64);
    b.tensor("n", {4}, 0, test_bytes(16));
    const std::string bytes = b.build();
    const auto e = test::catch_error([&] { parse(bytes); });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_THAT(e.message, HasSubstr("OxiBonsai"));
  }
  // Other strings under the key, and the mark in a file without such tensors, are harmless.
  GgufBuilder other;
  other.kv_string("general.quantization_version", "2");
  add(other, "w", false, 128, 64);
  other.tensor("n", {4}, 0, test_bytes(16));
  const std::string other_bytes = other.build();
  EXPECT_NO_THROW(parse(other_bytes));
  GgufBuilder plain;
  plain.kv_string("general.quantization_version", "TQ2_0_G128").tensor("n", {4}, 0, test_bytes(16));
  const std::string plain_bytes = plain.build();
  EXPECT_NO_THROW(parse(plain_bytes));
}

TEST(Type42Test, ACutFileIsCalledCut) {
  for (const bool legacy : {false, true}) {
    GgufBuilder b;
    add(b, "w", legacy, 128, 64);
    b.tensor("n", {4}, 0, test_bytes(16));
    const std::string whole = b.build();
    for (const size_t missing : {size_t{100}, size_t{1000}, size_t{2000}}) {
      const std::string cut = whole.substr(0, whole.size() - missing);
      EXPECT_THAT(test::catch_error([&] { parse(cut); }).message, HasSubstr("cut off"));
    }
  }
}

}  // namespace
}  // namespace ts
