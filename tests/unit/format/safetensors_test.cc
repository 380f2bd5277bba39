#include "format/safetensors.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_matchers.h"
#include "support/gguf_builder.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::append_value;
using test::as_bytes;
using test::catch_error;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data = {}) {
  std::string out;
  append_value<uint64_t>(out, header.size());
  return out + header + data;
}

/// The parsed file; it keeps its bytes alive.
std::shared_ptr<const Safetensors> parse_safetensors(std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  const auto file = Safetensors::parse(as_bytes(*kept), "m.safetensors");
  return {file.get(), [kept, file](const Safetensors*) {}};
}

std::string message_of(const std::string& bytes) {
  const auto e = catch_error([&] { parse_safetensors(bytes); });
  EXPECT_EQ(e.code, ErrorCode::kFormat) << e.message;
  EXPECT_THAT(e.message, HasSubstr("m.safetensors"));
  return e.message;
}

/// `{"dtype":"U8","shape":[n],"data_offsets":[begin,end]}`
std::string u8(uint64_t begin, uint64_t end) {
  return "{\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) + "],\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsTest, ReadsTheWorkedExample) {
  const std::string header =
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]},"s":{"dtype":"F32","shape":[],"data_offsets":[12,16]}})";
  ASSERT_EQ(header.size(), 112u);
  const std::string data("\x80\x3f\x00\xc0\x00\x3f\x40\x40\x80\x3e\x80\xbf\x00\x00\xc0\x3f", 16);
  const auto file = parse_safetensors(file_of(header, data));
  ASSERT_EQ(file->tensors().size(), 2u);
  const SafetensorsEntry* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_THAT(b->shape, ElementsAre(2, 3));
  std::vector<float> values(6);
  Safetensors::read_f32(*b, 0, values);
  EXPECT_THAT(values, ElementsAre(1.0F, -2.0F, 0.5F, 3.0F, 0.25F, -1.0F));
  const SafetensorsEntry* s = file->find("s");
  ASSERT_NE(s, nullptr);
  EXPECT_EQ(s->n_elems(), 1);
  Safetensors::read_f32(*s, 0, std::span(values).first(1));
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(SafetensorsTest, AcceptsEmptyFilesMetadataAndExtraFields) {
  EXPECT_TRUE(parse_safetensors(file_of("{}      "))->tensors().empty());
  EXPECT_TRUE(parse_safetensors(file_of("{}"))->tensors().empty());
  const auto file = parse_safetensors(file_of(
      R"({"__metadata__":{"format":"pt","a":"b"},"z":{"new":[{"x":[1,"dtype",null]},2.5],"dtype":"U8","shape":[2],"data_offsets":[1,3]},"a":{"dtype":"NEW7","shape":[5,5],"data_offsets":[0,1],"more":{}},"none":{"dtype":"F32","shape":[0,4],"data_offsets":[1,1]}})",
      "123"));
  EXPECT_EQ(file->metadata().at("format"), "pt");
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[0].name, "a");  // in order of name
  EXPECT_EQ(file->find("none")->n_elems(), 0);
  EXPECT_EQ(file->find("z")->data.size(), 2u);
}

TEST(SafetensorsTest, EveryFaultHasItsOwnMessage) {
  std::set<std::string> messages;
  const auto faulty = [&](const std::string& bytes, const char* said, const char* named) {
    const std::string message = message_of(bytes);
    EXPECT_THAT(message, AllOf(HasSubstr(said), HasSubstr(named)));
    EXPECT_TRUE(messages.insert(message).second) << message;
  };
  const std::string three(3, '.');
  faulty(file_of("{\"a\":" + u8(0, 3) + ",\"a\":" + u8(0, 3) + "}", three), "listed twice", "'a'");
  faulty(file_of("{\"a\":" + u8(0, 2) + ",\"b\":" + u8(1, 3) + "}", three), "overlap", "'b'");
  faulty(file_of("{\"a\":" + u8(0, 3) + ",\"b\":" + u8(0, 3) + "}", three), "overlap", "0 to 3");
  faulty(file_of("{\"a\":" + u8(0, 1) + ",\"b\":" + u8(2, 3) + "}", three), "belong to no tensor",
         "'b'");
  faulty(file_of("{\"a\":" + u8(1, 3) + "}", three), "belong to no tensor", "'a'");
  faulty(file_of("{\"a\":" + u8(0, 2) + "}", three), "follow the last tensor", "1 bytes");
  faulty(file_of("{}", three), "follow the last tensor", "3 bytes");
  faulty(file_of("{\"a\":" + u8(0, 4) + "}", three), "cut off", "'a'");
  faulty(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})", three),
         "has 3 bytes, expected 4", "'a'");
  faulty(file_of(R"({"a":{"dtype":"F6_E2M3","shape":[3],"data_offsets":[0,3]}})", three),
         "expected 2.25", "'a'");
  faulty(file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[3,0]}})", three),
         "before it begins", "'a'");
  std::string huge;
  append_value<uint64_t>(huge, 101'000'000);
  faulty(huge + "{\"a\":1}", "101000000 bytes, expected 2 to 100000000", "header");
  std::string negative;
  append_value<uint64_t>(negative, UINT64_MAX);
  faulty(negative + "{}", "18446744073709551615", "header");
  std::string cut;
  append_value<uint64_t>(cut, 1000);
  faulty(cut + "{\"a\":", "cut off", "1000");
  faulty(std::string(5000, '\0'), "zeros", "interrupted");
  faulty("{}", "JSON text", "not a safetensors");
  faulty("abc", "too few", "3 bytes");
  faulty(std::string("PK\x03\x04", 4) + std::string(100, 'x'), "zip archive", "pickle");
  faulty(std::string("\x80\x02\x8a\x0a", 4) + std::string(100, 'x'), "Python pickle", "code");
  faulty("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "git-lfs", "pull");
  faulty("GGUF" + std::string(100, '\0'), "GGUF", "not a safetensors");
  faulty("<!DOCTYPE html><html>...", "web page", "download");
  EXPECT_THAT(message_of(std::string("\x80\x04\x95\x00", 4) + std::string(100, '\0')),
              HasSubstr("pickle"));
  // A short header's length may look like a pickle's first bytes.
  std::string cut_off;
  append_value<uint64_t>(cut_off, 0x0280);
  EXPECT_THAT(message_of(cut_off + "{\"a\":"), HasSubstr("cut off"));
}

TEST(SafetensorsTest, HeadersAreReadStrictly) {
  const auto entry = [](const std::string& body) { return file_of("{\"a\":" + body + "}", "123"); };
  for (const auto& [bytes, said] : std::vector<std::pair<std::string, const char*>>{
           {file_of("[]"), "starts with"},
           {file_of("{}\n"), "ends with"},
           {file_of("{}x"), "ends with"},
           {file_of("{} {}"), "JSON"},
           {file_of("{\"a\":}"), "JSON"},
           {file_of("{\"\xFF\":1}"), "JSON"},
           {file_of("{\"a\":1}"), "expected an object"},
           {file_of("{\"a\":[]}"), "expected an object"},
           {file_of("{\"a\":{}}"), "no 'dtype'"},
           {entry(R"({"dtype":"U8","shape":[3]})"), "no 'data_offsets'"},
           {entry(R"({"dtype":"U8","data_offsets":[0,3]})"), "no 'shape'"},
           {entry(R"({"dtype":7,"shape":[3],"data_offsets":[0,3]})"), "expected a string"},
           {entry(R"({"dtype":["U8"],"shape":[3],"data_offsets":[0,3]})"), "expected a string"},
           {entry(R"({"dtype":"U8","shape":3,"data_offsets":[0,3]})"), "array of integers"},
           {entry(R"({"dtype":"U8","shape":{},"data_offsets":[0,3]})"), "array of integers"},
           {entry(R"({"dtype":"U8","shape":[3.0],"data_offsets":[0,3]})"), "not an integer"},
           {entry(R"({"dtype":"U8","shape":[true],"data_offsets":[0,3]})"), "a bool"},
           {entry(R"({"dtype":"U8","shape":["3"],"data_offsets":[0,3]})"), "a string"},
           {entry(R"({"dtype":"U8","shape":[[3]],"data_offsets":[0,3]})"), "an array"},
           {entry(R"({"dtype":"U8","shape":[-3],"data_offsets":[0,3]})"), "negative"},
           {entry(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,3]})"),
            "64 bits"},
           {entry(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,3]})"),
            "64 bits"},
           {entry(R"({"dtype":"NEW","shape":[4294967296,4294967296],"data_offsets":[0,3]})"),
            "64 bits"},
           {entry(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})"),
            "64 bits"},
           {entry(R"({"dtype":"U8","shape":[3],"data_offsets":[0]})"), "fewer than two"},
           {entry(R"({"dtype":"U8","shape":[3],"data_offsets":[0,3,3]})"), "more than two"},
           {entry(R"({"dtype":"U8","shape":[3],"data_offsets":[0,18446744073709551615]})"),
            "cut off"},
           {entry(R"({"dtype":"U8","shape":[3],"shape":[3],"data_offsets":[0,3]})"), "twice"},
           {file_of(R"({"__metadata__":{"a":1}})"), "__metadata__"},
           {file_of(R"({"__metadata__":{"a":{}}})"), "__metadata__"},
           {file_of(R"({"__metadata__":3})"), "__metadata__"},
           {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "twice"},
       }) {
    EXPECT_THAT(message_of(bytes), HasSubstr(said)) << bytes;
  }
}

TEST(SafetensorsTest, DeepNestingIsRefused) {
  const std::string deep = "{\"a\":{\"x\":" + std::string(200000, '[') + std::string(200000, ']') +
                           ",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}";
  EXPECT_THAT(message_of(file_of(deep)), HasSubstr("deep"));
  EXPECT_EQ(catch_error([&] {
              parse_safetensors(
                  file_of("{\"a\":[" + std::string(100000, '[') + std::string(100000, ']') + "]}"));
            }).code,
            ErrorCode::kFormat);
}

TEST(SafetensorsTest, EveryCutIsAnError) {
  const std::string whole =
      file_of("{\"a\":" + u8(0, 100) + ",\"b\":" + u8(100, 150) + "}", test::test_bytes(150));
  EXPECT_NO_THROW(parse_safetensors(whole));
  for (size_t n = 0; n < whole.size(); ++n)
    message_of(whole.substr(0, n));
}

class SafetensorsDirTest : public ::testing::Test {
 protected:
  void shard(const std::string& name, const std::vector<std::string>& tensors) {
    std::string header = "{";
    uint64_t at = 0;
    for (const std::string& t : tensors) {
      header += (at ? ",\"" : "\"") + t + "\":" + u8(at, at + 2);
      at += 2;
    }
    test::write_file(dir_ / name, file_of(header + "}", test::test_bytes(at)));
  }
  void index(const std::string& weight_map) {
    test::write_file(dir_ / "model.safetensors.index.json",
                     R"({"metadata":{"total_size":"wrong"},"weight_map":)" + weight_map + "}");
  }
  test::Thrown fails(const std::string& name = {}) {
    return catch_error([&] { Safetensors::open(name.empty() ? dir_.path() : dir_ / name); });
  }
  static constexpr const char* kOne = "model-00001-of-00002.safetensors";
  static constexpr const char* kTwo = "model-00002-of-00002.safetensors";
  test::TempDir dir_;
};

TEST_F(SafetensorsDirTest, OpensASingleFileAndItsFolder) {
  shard("model.safetensors", {"a", "b"});
  shard("consolidated.safetensors", {"x"});
  EXPECT_EQ(Safetensors::open(dir_.path())->tensors().size(), 2u);
  EXPECT_EQ(Safetensors::open(dir_ / "model.safetensors")->find("b")->file,
            dir_ / "model.safetensors");
}

TEST_F(SafetensorsDirTest, OpensShardsWithAndWithoutIndex) {
  shard(kOne, {"a", "c"});
  shard(kTwo, {"b"});
  EXPECT_EQ(Safetensors::open(dir_.path())->tensors().size(), 3u);
  index(
      R"({"a":"model-00001-of-00002.safetensors","c":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  const auto file = Safetensors::open(dir_.path());
  ASSERT_EQ(file->tensors().size(), 3u);
  EXPECT_EQ(file->tensors()[1].name, "b");
  EXPECT_EQ(file->find("b")->file.filename(), kTwo);
  EXPECT_EQ(Safetensors::open(dir_ / "model.safetensors.index.json")->tensors().size(), 3u);
}

TEST_F(SafetensorsDirTest, MissingPiecesAreNamed) {
  EXPECT_THAT(fails().message, HasSubstr("no model.safetensors"));
  shard(kOne, {"a"});
  EXPECT_THAT(fails().message, AllOf(HasSubstr("1 of the 2 shards"), HasSubstr("incomplete")));
  index(R"({"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"})");
  EXPECT_THAT(fails().message, AllOf(HasSubstr(kTwo), HasSubstr("incomplete")));
  shard(kTwo, {});
  EXPECT_THAT(fails().message, AllOf(HasSubstr("'b'"), HasSubstr("incomplete")));
  shard(kTwo, {"b", "extra"});
  EXPECT_THAT(fails().message, AllOf(HasSubstr("'extra'"), HasSubstr("different versions")));
  shard(kOne, {"b"});
  shard(kTwo, {"a"});
  EXPECT_THAT(fails().message, AllOf(HasSubstr("places tensor"), HasSubstr(kOne)));
  shard(kTwo, {"b"});
  EXPECT_EQ(fails().code, ErrorCode::kFormat);
  std::filesystem::remove(dir_ / "model.safetensors.index.json");
  EXPECT_THAT(fails().message, AllOf(HasSubstr("'b'"), HasSubstr("different models")));
}

TEST_F(SafetensorsDirTest, TheIndexCannotLeadOutOfTheFolder) {
  shard(kOne, {"a"});
  for (const char* name : {"../x.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "",
                           "a\\\\b.safetensors", "model.bin", "a\\u0000.safetensors"}) {
    index(std::string(R"({"a":")") + name + "\"}");
    EXPECT_THAT(fails().message, HasSubstr("weight_map")) << name;
  }
  index(R"({"a":7})");
  EXPECT_THAT(fails().message, HasSubstr("number"));
  index(R"([])");
  EXPECT_THAT(fails().message, HasSubstr("no object 'weight_map'"));
  index(R"({"a":"x.safetensors","a":"y.safetensors"})");
  EXPECT_THAT(fails().message, HasSubstr("twice"));
}

TEST_F(SafetensorsDirTest, OtherCheckpointsAreExplained) {
  test::write_file(dir_ / "pytorch_model.bin", "PK\x03\x04");
  EXPECT_THAT(fails().message, HasSubstr("pytorch_model.bin"));
  EXPECT_EQ(fails().code, ErrorCode::kUnsupported);
  shard("consolidated.safetensors", {"x"});
  EXPECT_THAT(fails().message, HasSubstr("consolidated.safetensors"));
  shard("adapter_model.safetensors", {"x"});
  EXPECT_THAT(fails().message, HasSubstr("LoRA"));
  EXPECT_THAT(fails("adapter_model.safetensors").message, HasSubstr("LoRA"));
}

}  // namespace
}  // namespace ts
