// Damaged GGUF files: each must end in one clean error that names what is wrong, quickly, without
// asking for memory in proportion to what the file claims.

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/gguf.h"
#include "support/cpu_timer.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"
#include "support/temp_dir.h"

namespace {
// The largest single request to the allocator since it was last cleared.
std::atomic<size_t> g_largest_request{0};

void* allocate(size_t bytes) {
  size_t seen = g_largest_request.load(std::memory_order_relaxed);
  while (bytes > seen && !g_largest_request.compare_exchange_weak(seen, bytes)) {
  }
  void* p = std::malloc(bytes > 0 ? bytes : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

void* operator new(size_t bytes) {
  return allocate(bytes);
}
void* operator new[](size_t bytes) {
  return allocate(bytes);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes > 0 ? bytes : 1);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p, const std::nothrow_t&) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}

namespace ts {
namespace {

using test::append_string;
using test::append_value;
using test::as_bytes;
using test::GgufBuilder;
using test::test_bytes;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kMaxRequestBytes = size_t{1} << 20;
constexpr double kMaxSeconds = 0.1;

/// Parses `bytes`, which must fail within the bounds; returns the error.
test::Thrown fails(const std::string& bytes) {
  g_largest_request = 0;
  const test::CpuTimer timer;
  const auto thrown = test::catch_error([&] { GgufFile::parse(as_bytes(bytes), "damaged.gguf"); });
  EXPECT_LT(timer.seconds(), kMaxSeconds * test::kTimeFactor);
  EXPECT_LT(g_largest_request.load(), kMaxRequestBytes);
  EXPECT_TRUE(thrown.code == ErrorCode::kFormat || thrown.code == ErrorCode::kUnsupported)
      << thrown.message;
  EXPECT_THAT(thrown.message, HasSubstr("damaged.gguf"));
  return thrown;
}

std::string message_of(const GgufBuilder& builder) {
  return fails(builder.build()).message;
}

/// A small model with weights in rotated ternary types, as a download would hold.
GgufBuilder ternary_model() {
  GgufBuilder b;
  b.kv_string("general.architecture", "qwen3").kv_u32("qwen3.block_count", 1);
  b.kv_strings("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b", "ab"});
  b.kv_array<float>("tokenizer.ggml.scores", 6, {0, 0, -1, -2, -3});
  b.kv_string("prism.hadamard.version", "1");
  b.tensor("token_embd.weight", {128, 5}, 142, test_bytes(170, 1));
  b.tensor("blk.0.attn_norm.weight", {128}, 0, test_bytes(512, 2));
  b.tensor("blk.0.attn_q.weight", {128, 32}, 143, test_bytes(896, 3));
  b.tensor("blk.0.ffn_up.weight", {128, 16}, 42, test_bytes(576, 4));
  b.tensor("output.weight", {128, 5}, 142, test_bytes(170, 5));
  return b;
}

TEST(DamagedGgufTest, TheUndamagedFileOpens) {
  const std::string bytes = ternary_model().build();
  const auto file = GgufFile::parse(as_bytes(bytes), "good.gguf");
  EXPECT_EQ(file->tensors().size(), 5u);
  EXPECT_TRUE(file->notes().empty());
}

TEST(DamagedGgufTest, CutAnywhereItSaysSoAndNamesThePlace) {
  GgufBuilder b = ternary_model();
  b.pad_last = false;
  const std::string whole = b.build();
  const size_t header_bytes = b.header().size();
  ASSERT_GT(whole.size(), 2000u);
  ASSERT_NO_THROW(GgufFile::parse(as_bytes(whole), "good.gguf"));
  for (size_t n = 0; n < whole.size(); ++n) {
    SCOPED_TRACE(n);
    const std::string message = fails(whole.substr(0, n)).message;
    if (n >= 4) {
      EXPECT_THAT(message, AllOf(HasSubstr("cut off"), HasSubstr("download it again")));
    }
    if (n >= header_bytes) {
      // In the data: the tensor, what it needs and what there is.
      EXPECT_THAT(message,
                  AllOf(HasSubstr("tensor '"), HasSubstr("the file has " + std::to_string(n)),
                        HasSubstr("needed")));
    }
  }
}

TEST(DamagedGgufTest, CutFilesOnDiskAreRefusedToo) {
  const test::TempDir dir;
  const std::string whole = ternary_model().build();
  for (size_t n = 1; n + 32 < whole.size(); n += whole.size() / 40) {
    const auto path = dir / "damaged.gguf";
    test::write_file(path, whole.substr(0, n));
    const auto thrown = test::catch_error([&] { GgufFile::open(path); });
    EXPECT_EQ(thrown.code, ErrorCode::kFormat);
    EXPECT_THAT(thrown.message, HasSubstr(path.string()));
  }
  test::write_file(dir / "empty.gguf", "");
  EXPECT_THAT(test::catch_error([&] { GgufFile::open(dir / "empty.gguf"); }).message,
              HasSubstr("empty"));
  EXPECT_EQ(test::catch_error([&] { GgufFile::open(dir / "missing.gguf"); }).code, ErrorCode::kIo);
  EXPECT_EQ(test::catch_error([&] { GgufFile::open(dir.path()); }).code, ErrorCode::kIo);
}

TEST(DamagedGgufTest, WildOffsets) {
  for (size_t i = 0; i < 5; ++i) {
    for (const uint64_t offset : {uint64_t{1} << 40, ~uint64_t{0} - 15, ~uint64_t{0} - 31,
                                  uint64_t{1} << 63, ~uint64_t{0}, uint64_t{4096}}) {
      GgufBuilder b = ternary_model();
      b.tensors[i].offset = offset;
      EXPECT_THAT(message_of(b), AllOf(HasSubstr("tensor '" + b.tensors[i].name + "'"),
                                       HasSubstr(std::to_string(offset)), HasSubstr("needs"),
                                       HasSubstr("the file has")));
    }
  }
  for (size_t i = 0; i + 1 < 5; ++i) {
    GgufBuilder overlapping = ternary_model();
    overlapping.tensors[i].offset = 32;
    overlapping.tensors[i + 1].offset = 32;
    EXPECT_THAT(message_of(overlapping), HasSubstr("overlap"));
  }
  for (const uint64_t offset : {1u, 16u, 33u}) {
    GgufBuilder b = ternary_model();
    b.tensors[1].offset = offset;
    EXPECT_THAT(message_of(b), AllOf(HasSubstr("blk.0.attn_norm.weight"), HasSubstr("alignment")));
  }
}

TEST(DamagedGgufTest, OverlapWithATensorOfUnknownType) {
  GgufBuilder b;
  b.tensor("odd", {64}, 199, test_bytes(64)).tensor("a", {16}, 0, test_bytes(64));
  b.tensors[0].offset = 64 + 32;  // inside a
  EXPECT_THAT(message_of(b), AllOf(HasSubstr("overlap"), HasSubstr("'odd'")));
  b.tensors[0].offset = 1 << 20;
  EXPECT_THAT(message_of(b), AllOf(HasSubstr("'odd'"), HasSubstr("unknown(199)")));
}

TEST(DamagedGgufTest, ShapesThatOverflow) {
  const uint64_t max = INT64_MAX;
  for (const uint32_t type : {0u, 1u, 2u, 12u, 28u, 42u, 142u, 143u, 199u}) {
    for (const std::vector<uint64_t>& dims : std::vector<std::vector<uint64_t>>{
             {max, 2},
             {(uint64_t{1} << 42) + 1, uint64_t{1} << 42},
             {uint64_t{1} << 62, 4, 1, 1},
             {uint64_t{1} << 32, uint64_t{1} << 32, 1, 64},
             {(uint64_t{1} << 58) + 1, 64},
             {~uint64_t{0}},
             {uint64_t{1} << 63},
             {256, ~uint64_t{0} / 256 + 1},
             {256, 0},
             {0},
         }) {
      GgufBuilder b;
      b.tensor("big", dims, type, test_bytes(64));
      EXPECT_THAT(message_of(b), AllOf(HasSubstr("'big'"), HasSubstr("damaged")));
    }
  }
  // These fit 64 bits as counts, and then the file is too short or their bytes overflow.
  for (const uint32_t type : {0u, 28u, 42u, 142u}) {
    for (const std::vector<uint64_t>& dims : std::vector<std::vector<uint64_t>>{
             {uint64_t{1} << 61},
             {(~uint64_t{0} / 4) & ~uint64_t{255}},
             {uint64_t{1} << 62},
             {128, uint64_t{1} << 54},
             {128, 2, 2, uint64_t{1} << 50},
         }) {
      GgufBuilder b;
      b.tensor("big", dims, type, test_bytes(64));
      EXPECT_THAT(message_of(b), HasSubstr("'big'"));
    }
  }
}

TEST(DamagedGgufTest, HeaderCounts) {
  for (const uint64_t count : {uint64_t{2}, uint64_t{100000}, uint64_t{1} << 40, uint64_t{1} << 62,
                               uint64_t{1} << 63, ~uint64_t{0}}) {
    GgufBuilder b;
    b.kv_u32("a", 1);
    b.tensor_count = count;
    EXPECT_THAT(message_of(b), HasSubstr("tensor"));
    GgufBuilder c;
    c.kv_u32("a", 1);
    c.pair_count = count;
    EXPECT_THAT(message_of(c), HasSubstr("metadata"));
  }
}

TEST(DamagedGgufTest, StringsAndArraysLongerThanTheFile) {
  for (const uint64_t length : {uint64_t{100}, uint64_t{1} << 30, uint64_t{1} << 40,
                                uint64_t{1} << 62, uint64_t{1} << 63, ~uint64_t{0}}) {
    std::string value;
    append_value(value, length);
    value += "abc";
    EXPECT_THAT(message_of(GgufBuilder().kv_raw("long", 8, value)),
                AllOf(HasSubstr("'long'"), HasSubstr(std::to_string(length))));
    for (const uint32_t type : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 10u, 11u, 12u}) {
      std::string array;
      append_value(array, type);
      append_value(array, length);
      array += std::string(16, '\0');
      EXPECT_THAT(message_of(GgufBuilder().kv_raw("many", 9, array)),
                  AllOf(HasSubstr("'many'"), HasSubstr(std::to_string(length))));
    }
    std::string key;
    append_value<uint32_t>(key, 0x46554747);
    append_value<uint32_t>(key, 3);
    append_value<uint64_t>(key, 0);
    append_value<uint64_t>(key, 1);
    append_value(key, length);
    key += std::string(50, 'k');
    EXPECT_THAT(fails(key).message, HasSubstr("metadata pair 0"));
  }
  // The second string of an array is the long one.
  std::string array;
  append_value<uint32_t>(array, 8);
  append_value<uint64_t>(array, 2);
  append_string(array, "ok");
  append_value<uint64_t>(array, uint64_t{1} << 63);
  EXPECT_THAT(message_of(GgufBuilder().kv_raw("strings", 9, array)), HasSubstr("'strings'[1]"));
}

TEST(DamagedGgufTest, NestedArraysAndUnknownValueTypes) {
  std::string nested;
  for (int i = 0; i < 10000; ++i) {
    append_value<uint32_t>(nested, 9);
    append_value<uint64_t>(nested, 1);
  }
  EXPECT_THAT(message_of(GgufBuilder().kv_raw("deep", 9, nested)),
              AllOf(HasSubstr("'deep'"), HasSubstr("array of arrays")));
  for (const uint32_t type : {13u, 99u, 0xFFFFFFFFu}) {
    EXPECT_THAT(message_of(GgufBuilder().kv_raw("odd", type, "12345678")),
                AllOf(HasSubstr("'odd'"), HasSubstr(std::to_string(type))));
    std::string array;
    append_value(array, type);
    append_value<uint64_t>(array, 1);
    EXPECT_THAT(message_of(GgufBuilder().kv_raw("odd", 9, array + "12345678")),
                AllOf(HasSubstr("'odd'"), HasSubstr(std::to_string(type))));
  }
  EXPECT_THAT(message_of(GgufBuilder().kv<uint8_t>("flag", 7, 2)), HasSubstr("'flag'"));
  EXPECT_THAT(message_of(GgufBuilder().kv_array<uint8_t>("flags", 7, {0, 1, 255})),
              HasSubstr("'flags'"));
}

TEST(DamagedGgufTest, Alignment) {
  for (const uint32_t alignment : {0u, 1u, 2u, 3u, 4u, 24u, 33u, 1u << 31, 0xFFFFFFFFu}) {
    GgufBuilder b;
    b.kv_u32("general.alignment", alignment).tensor("a", {8}, 0, test_bytes(32));
    EXPECT_THAT(message_of(b), AllOf(HasSubstr("general.alignment"),
                                     HasSubstr("is " + std::to_string(alignment))));
  }
  // A legal but absurd one puts the data beyond the file.
  GgufBuilder far;
  far.kv_u32("general.alignment", 1u << 30).tensor("a", {8}, 0, test_bytes(32));
  EXPECT_THAT(message_of(far), HasSubstr("'a'"));
  GgufBuilder i32;
  i32.kv<int32_t>("general.alignment", 5, 32).tensor("a", {8}, 0, test_bytes(32));
  EXPECT_THAT(message_of(i32), AllOf(HasSubstr("general.alignment"), HasSubstr("i32")));
  GgufBuilder text;
  text.kv_string("general.alignment", "32").tensor("a", {8}, 0, test_bytes(32));
  EXPECT_THAT(message_of(text), AllOf(HasSubstr("general.alignment"), HasSubstr("string")));
}

TEST(DamagedGgufTest, DimensionsNamesAndRows) {
  for (const uint32_t n_dims : {0u, 5u, 9u, 0xFFFFFFFFu}) {
    GgufBuilder b;
    b.tensor("a", {8, 1, 1, 1, 1}, 0, test_bytes(32));
    b.tensors[0].n_dims = n_dims;
    EXPECT_THAT(message_of(b), AllOf(HasSubstr("'a'"), HasSubstr(std::to_string(n_dims)),
                                     HasSubstr("expected 1 to 4")));
  }
  struct Row {
    uint32_t type;
    uint64_t width;
    const char* block;
  };
  for (const Row& row : {Row{2, 48, "32"}, Row{12, 128, "256"}, Row{42, 32, "64"},
                         Row{142, 64, "128"}, Row{143, 576, "128"}, Row{34, 576, "256"}}) {
    GgufBuilder b;
    b.tensor("rows", {row.width, 4}, row.type, test_bytes(4096));
    EXPECT_THAT(message_of(b), AllOf(HasSubstr("'rows'"), HasSubstr(std::to_string(row.width)),
                                     HasSubstr(row.block)));
  }
  GgufBuilder twice;
  twice.tensor("same", {8}, 0, test_bytes(32)).tensor("same", {8}, 0, test_bytes(32));
  EXPECT_THAT(message_of(twice), AllOf(HasSubstr("'same'"), HasSubstr("twice")));
  EXPECT_THAT(message_of(GgufBuilder().kv_u32("k", 1).kv_u32("k", 1)),
              AllOf(HasSubstr("'k'"), HasSubstr("twice")));
  EXPECT_THAT(message_of(GgufBuilder().kv_u32("", 1)), HasSubstr("empty"));
  for (const std::string& name :
       {std::string(64, 'n'), std::string(5000, 'n'), std::string(), std::string("a\nb"),
        std::string("a\0b", 3), std::string("\xFF")}) {
    GgufBuilder b;
    b.tensor(name, {8}, 0, test_bytes(32));
    const std::string message = message_of(b);
    EXPECT_THAT(message, HasSubstr("name"));
    EXPECT_LT(message.size(), 400u);
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  GgufBuilder longest;
  longest.tensor(std::string(63, 'n'), {8}, 0, test_bytes(32));
  const std::string bytes = longest.build();
  EXPECT_NO_THROW(GgufFile::parse(as_bytes(bytes), "good.gguf"));
}

TEST(DamagedGgufTest, VersionsAndByteOrder) {
  const auto with_version = [](uint32_t version) {
    GgufBuilder b;
    b.version = version;
    return fails(b.build());
  };
  EXPECT_THAT(with_version(0).message, HasSubstr("version 0"));
  EXPECT_THAT(with_version(1).message, HasSubstr("too old"));
  EXPECT_EQ(with_version(1).code, ErrorCode::kUnsupported);
  EXPECT_THAT(with_version(4).message, HasSubstr("newer"));
  EXPECT_EQ(with_version(4).code, ErrorCode::kUnsupported);
  EXPECT_THAT(with_version(3u << 24).message, HasSubstr("big-endian"));
  EXPECT_EQ(with_version(2u << 24).code, ErrorCode::kUnsupported);
}

TEST(DamagedGgufTest, OtherFilesUnderTheName) {
  const auto what = [](const std::string& bytes) { return fails(bytes).message; };
  EXPECT_THAT(what("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 34\n"),
              HasSubstr("git-lfs pointer"));
  EXPECT_THAT(what("<!doctype html>\n<html><body>Log in</body></html>"), HasSubstr("web page"));
  EXPECT_THAT(what("\xEF\xBB\xBF  \n<HTML lang=en>"), HasSubstr("web page"));
  EXPECT_THAT(what("{\"error\":\"Invalid token\"}"), HasSubstr("JSON"));
  EXPECT_THAT(what(std::string("PK\x03\x04", 4) + std::string(60, 'x')), HasSubstr("pickle"));
  EXPECT_THAT(what("\x80\x02}q\x01(X"), HasSubstr("pickle"));
  EXPECT_THAT(what(std::string("\x08\0\0\0\0\0\0\0{}      ", 16)), HasSubstr("safetensors"));
  EXPECT_THAT(what("tjgg" + std::string(100, '\1')), HasSubstr("before GGUF"));
  EXPECT_THAT(what(std::string(4096, '\0')), HasSubstr("zeros"));
  EXPECT_THAT(what("\x1f\x8b\x08"), HasSubstr("gzip"));
  EXPECT_THAT(what("\x7f"
                   "ELF\x02"),
              HasSubstr("program"));
  EXPECT_THAT(what("GGU"), HasSubstr("expected 'GGUF'"));
  EXPECT_THAT(what("\x1b[2J\x07 evil"), Not(HasSubstr("\x1b")));
  EXPECT_THAT(what("GGUF"), HasSubstr("version"));
}

TEST(DamagedGgufTest, UnsupportedTypesAreNotCalledDamage) {
  // The same file with an unknown type opens; its other tensors keep their bytes.
  GgufBuilder b = ternary_model();
  b.tensors[4].type = 199;
  const std::string bytes = b.build();
  const auto file = GgufFile::parse(as_bytes(bytes), "m.gguf");
  EXPECT_EQ(file->tensors()[4].bytes, 0u);
  EXPECT_EQ(file->tensors()[2].bytes, 896u);
  // I2_S, rows of 6912.
  GgufBuilder bitnet;
  bitnet.kv_string("general.architecture", "bitnet-b1.58");
  bitnet.tensor("blk.0.ffn_down.weight", {6912, 4}, 36, test_bytes(6912 + 32));
  const std::string bitnet_bytes = bitnet.build();
  EXPECT_EQ(GgufFile::parse(as_bytes(bitnet_bytes), "m.gguf")->tensors()[0].bytes, 0u);
}

TEST(DamagedGgufTest, EveryByteFlippedIsAFileOrACleanError) {
  const std::string whole = ternary_model().build();
  const size_t header_bytes = ternary_model().header().size();
  size_t refused = 0;
  for (size_t i = 0; i < header_bytes; ++i) {
    for (const int bit : {0, 7}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(static_cast<unsigned char>(bytes[i]) ^ (1u << bit));
      g_largest_request = 0;
      try {
        const auto file = GgufFile::parse(as_bytes(bytes), "m.gguf");
        for (const TensorEntry& t : file->tensors()) {
          ASSERT_GE(t.data.data(), t.bytes ? as_bytes(bytes).data() : nullptr);
          ASSERT_LE(t.file_offset + t.bytes, bytes.size());
        }
      } catch (const Error&) {
        ++refused;
      }
      ASSERT_LT(g_largest_request.load(), kMaxRequestBytes);
    }
  }
  EXPECT_GT(refused, header_bytes / 2);
}

}  // namespace
}  // namespace ts
