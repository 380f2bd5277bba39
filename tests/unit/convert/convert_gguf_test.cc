#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/codec.h"
#include "convert/convert.h"
#include "format/gguf.h"
#include "support/error_matchers.h"
#include "support/gguf_builder.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::GgufBuilder;
using test::Thrown;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kCols = 256, kRows = 6;

/// Digits times scale: one scale for each `group` values of a row.
std::vector<float> ternary_values(size_t group) {
  std::vector<float> values;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t c = 0; c < kCols; ++c) {
      const float scale = 0.25F + static_cast<float>((r * 5 + c / group * 3) % 7) / 16.0F;
      values.push_back(static_cast<float>(static_cast<int>((r * 7 + c * 5 + c / 9) % 3) - 1) *
                       scale);
    }
  }
  return values;
}

std::string encode(std::string_view type, const std::vector<float>& values) {
  const Codec& codec = *find_codec(type);
  std::string bytes(values.size() / codec.block_elems * codec.block_bytes, '\0');
  codec.encode(values.data(), reinterpret_cast<std::byte*>(bytes.data()), values.size());
  return bytes;
}

class ConvertGgufTest : public ::testing::Test {
 protected:
  ConvertGgufTest() {
    builder_.kv_string("general.architecture", "llama");
    builder_.kv_u32("general.file_type", 7);
    builder_.kv_string("note", "kept");
    builder_.kv_strings("names", {"kept", "too"});
  }
  void add(const std::string& name, std::string_view type, const std::vector<float>& values,
           uint64_t n_cols = kCols) {
    builder_.tensor(name, {n_cols, values.size() / n_cols},
                    static_cast<uint32_t>(find_codec(type)->id), encode(type, values));
  }
  ConvertReport convert(const std::string& type, bool lossy = false,
                        const Progress& progress = {}) {
    test::write_file(dir_ / "in.gguf", builder_.build());
    ConvertOptions options;
    options.type = type;
    options.lossy = lossy;
    options.overwrite = true;
    return convert_model(dir_ / "in.gguf", output(), options, progress);
  }
  /// What converting throws; no output may be left.
  Thrown failure(const std::string& type, bool lossy = false) {
    const Thrown e = test::catch_error([&] { convert(type, lossy); });
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      EXPECT_EQ(entry.path().filename(), "in.gguf");
    return e;
  }
  std::filesystem::path output() const { return dir_ / "out.gguf"; }
  std::string bytes_of(const std::string& name) {
    file_ = GgufFile::open(output());
    const auto data = file_->find(name)->data;
    return {reinterpret_cast<const char*>(data.data()), data.size()};
  }
  std::string type_of(const std::string& name) {
    file_ = GgufFile::open(output());
    return type_name(file_->find(name)->type);
  }

  test::TempDir dir_;
  GgufBuilder builder_;
  std::shared_ptr<const GgufFile> file_;
};

TEST_F(ConvertGgufTest, TernaryTypesBecomeEachOtherBitForBit) {
  const auto values = ternary_values(kCols);  // one scale a row: every ternary type holds it
  const char* types[] = {"ptq1_0", "pq2_0", "q2_0", "tq1_0", "tq2_0"};
  for (const char* from : types) {
    for (const char* to : types) {
      builder_ = GgufBuilder();
      builder_.kv_string("general.architecture", "llama");
      add("blk.0.w.weight", from, values);
      const ConvertReport report = convert(to);
      EXPECT_TRUE(report.lossless);
      EXPECT_EQ(type_of("blk.0.w.weight"), to);
      EXPECT_TRUE(bytes_of("blk.0.w.weight") == encode(to, values)) << from << " to " << to;
      EXPECT_EQ(file_->metadata().get_int("general.file_type", 0, 9999),
                find_codec(std::string_view(to))->file_type);
    }
  }
}

TEST_F(ConvertGgufTest, WiderGroupsAreRefusedWhereScalesDiffer) {
  const auto values = ternary_values(128);
  add("blk.0.w.weight", "pq2_0", values);
  for (const char* type : {"ptq1_0", "q2_0"}) {
    EXPECT_TRUE(convert(type).lossless);
    EXPECT_TRUE(bytes_of("blk.0.w.weight") == encode(type, values)) << type;
  }
  std::filesystem::remove(output());
  for (const char* type : {"tq2_0", "tq1_0"}) {
    const Thrown e = failure(type);
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_THAT(e.message,
                AllOf(HasSubstr("in.gguf"), HasSubstr("blk.0.w.weight"), HasSubstr("row 0"),
                      HasSubstr("column "), HasSubstr(type), HasSubstr("group of 256")))
        << e.message;
  }
  EXPECT_FALSE(convert("tq2_0", true).lossless);
}

TEST_F(ConvertGgufTest, TheMessageNamesTheFirstValueThatWouldChange) {
  auto values = ternary_values(kCols);
  values[4 * kCols + 200] = 0.3F;  // neither -s, 0 nor s
  add("blk.0.w.weight", "f32", values);
  const Thrown e = failure("pq2_0");
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("row 4, column 200 (block 1)"), HasSubstr("quantize")))
      << e.message;
}

TEST_F(ConvertGgufTest, TheFourthCodeOfTwoBitsIsNoTernaryDigit) {
  auto values = ternary_values(128);
  add("blk.0.w.weight", "pq2_0", values);
  builder_.tensors[0].data[2 + 9] |= '\x0c';  // code 3, twice the scale
  const Thrown e = failure("ptq1_0");
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, HasSubstr("row 0"));
  EXPECT_TRUE(convert("f32").lossless);
}

TEST_F(ConvertGgufTest, MetadataIsKept) {
  builder_.kv<uint16_t>("split.no", 2, 0);
  builder_.kv<uint16_t>("split.count", 2, 1);
  add("blk.0.w.weight", "pq2_0", ternary_values(128));
  add("token_embd.weight", "ptq1_0", ternary_values(128));
  convert("ptq1_0");
  const auto file = GgufFile::open(output());
  EXPECT_EQ(file->metadata().get_string("note"), "kept");
  EXPECT_THAT(*file->metadata().get_strings("names"), ElementsAreArray({"kept", "too"}));
  EXPECT_EQ(file->metadata().get_int("general.file_type", 0, 999), 143);
  EXPECT_FALSE(file->metadata().contains("split.count"));
  EXPECT_EQ(file->tensors()[0].name, "blk.0.w.weight");
}

TEST_F(ConvertGgufTest, RotatedFilesKeepTheirKeysOrAreRefused) {
  const auto file = [&](std::string_view name, uint32_t block) {
    builder_ = GgufBuilder();
    builder_.kv_string("general.architecture", "llama");
    builder_.kv_u32("prism.hadamard.version", 1);
    builder_.kv_u32("prism.hadamard.block_size", block);
    builder_.kv_string("prism.hadamard.transform", "normalized-sylvester-walsh-hadamard");
    builder_.kv_string("prism.hadamard.axis", "input-last-dimension");
    builder_.kv_string("prism.hadamard.sign_mode", "identity");
    builder_.kv_strings("prism.hadamard.weight_names", {std::string(name)});
    add("blk.0.attn_q.weight", "pq2_0", ternary_values(128));
  };
  file("blk.0.attn_q.weight", 128);
  EXPECT_THAT(convert("ptq1_0").notes, IsEmpty());
  EXPECT_THAT(*GgufFile::open(output())->metadata().get_strings("prism.hadamard.weight_names"),
              ElementsAreArray({"blk.0.attn_q.weight"}));
  std::filesystem::remove(output());

  file("blk.0.attn_k.weight", 128);
  for (const char* type : {"auto", "ptq1_0"}) {
    const Thrown e = failure(type);
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message, AllOf(HasSubstr("in.gguf"), HasSubstr("prism.hadamard.weight_names"),
                                 HasSubstr("blk.0.attn_k.weight")));
  }
  file("blk.0.attn_q.weight", 16384);
  EXPECT_EQ(failure("auto").code, ErrorCode::kUnsupported);
  file("blk.0.attn_q.weight", 128);
  builder_.kv_strings("tensorsharp.requires", {"time_travel"});
  const Thrown e = failure("auto");
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("tensorsharp.requires"), HasSubstr("time_travel")));
}

TEST_F(ConvertGgufTest, UnknownArchitecturesAreCopiedWithANote) {
  builder_ = GgufBuilder();
  builder_.kv_string("general.architecture", "mamba");
  add("blk.0.w.weight", "bf16", ternary_values(128));
  EXPECT_THAT(convert("f32").notes, Contains(HasSubstr("'mamba'")));
  EXPECT_EQ(type_of("blk.0.w.weight"), "f32");
}

TEST_F(ConvertGgufTest, RotatedTypesWithoutKeysAreNoted) {
  add("blk.0.w.weight", "pq2_0", ternary_values(128));
  EXPECT_THAT(convert("ptq1_0").notes, Contains(HasSubstr("without prism.hadamard.* keys")));
}

TEST_F(ConvertGgufTest, AutoCopiesEveryByte) {
  add("blk.0.w.weight", "q4_1", ternary_values(7));
  builder_.tensor("odd", {8}, static_cast<uint32_t>(TypeId::kI32), test::test_bytes(32));
  const ConvertReport report = convert("auto");
  EXPECT_TRUE(report.lossless);
  for (const auto& tensor : builder_.tensors)
    EXPECT_TRUE(bytes_of(tensor.name) == tensor.data) << tensor.name;
  EXPECT_EQ(GgufFile::open(output())->metadata().get_int("general.file_type", 0, 99), 7);
  EXPECT_EQ(report.output_bytes, std::filesystem::file_size(output()));
}

TEST_F(ConvertGgufTest, FloatTypes) {
  const std::vector<float> exact_in_all(kCols, 1.5F);
  std::vector<float> needs_f16 = exact_in_all, needs_bf16 = exact_in_all;
  needs_f16[9] = 1.0009765625F;  // 11 significant bits
  needs_bf16[9] = 0x1p100F;      // beyond f16's range
  add("blk.0.w.weight", "bf16", exact_in_all);
  EXPECT_TRUE(convert("f32").lossless);
  EXPECT_TRUE(bytes_of("blk.0.w.weight") == encode("f32", exact_in_all));
  std::filesystem::remove(output());
  const std::tuple<std::vector<float>, const char*, const char*> cases[] = {
      {needs_f16, "f16", "bf16"}, {needs_bf16, "bf16", "f16"}};
  for (const auto& [values, fits, loses] : cases) {
    builder_ = GgufBuilder();
    builder_.kv_string("general.architecture", "llama");
    add("blk.0.w.weight", "f32", values);
    EXPECT_TRUE(convert(fits).lossless);
    EXPECT_TRUE(bytes_of("blk.0.w.weight") == encode(fits, values));
    std::filesystem::remove(output());
    EXPECT_THAT(failure(loses).message, HasSubstr("blk.0.w.weight"));
  }
}

TEST_F(ConvertGgufTest, BlocksDecodeExactlyToF32) {
  const auto values = ternary_values(3);
  for (const char* type : {"q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k", "ptq1_0"}) {
    builder_ = GgufBuilder();
    builder_.kv_string("general.architecture", "llama");
    add("blk.0.w.weight", type, values);
    EXPECT_TRUE(convert("f32").lossless) << type;
    std::vector<float> decoded(values.size());
    const std::string& packed = builder_.tensors[0].data;
    find_codec(std::string_view(type))
        ->decode(reinterpret_cast<const std::byte*>(packed.data()), decoded.data(), decoded.size());
    EXPECT_TRUE(bytes_of("blk.0.w.weight") == encode("f32", decoded)) << type;
  }
  std::filesystem::remove(output());
  EXPECT_THAT(failure("q8_0").message, HasSubstr("--lossy"));
  EXPECT_FALSE(convert("q8_0", true).lossless);
}

TEST_F(ConvertGgufTest, SmallTensorsStayAsTheyAre) {
  const std::vector<float> ones(kCols, 0.1F);
  builder_.tensor("blk.0.attn_norm.weight", {kCols}, 0, encode("f32", ones));
  builder_.tensor("blk.0.attn_q.bias", {kCols}, 0, encode("f32", ones));
  builder_.tensor("blk.0.ssm_a", {kCols}, 0, encode("f32", ones));
  add("blk.0.ssm_conv1d.weight", "f32", std::vector<float>(16, 0.1F), 4);
  add("blk.0.ssm_alpha.weight", "bf16", ternary_values(5));
  add("blk.0.w.weight", "f32", ternary_values(kCols));
  const ConvertReport report = convert("ptq1_0");
  EXPECT_EQ(type_of("blk.0.w.weight"), "ptq1_0");
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.attn_q.bias", "blk.0.ssm_a", "blk.0.ssm_conv1d.weight"})
    EXPECT_EQ(type_of(name), "f32") << name;
  EXPECT_EQ(type_of("blk.0.ssm_alpha.weight"), "bf16");
  EXPECT_THAT(report.notes, Contains(HasSubstr("blk.0.ssm_alpha.weight")));
}

TEST_F(ConvertGgufTest, EmbeddingsThatAreNotTernaryStay) {
  add("token_embd.weight", "q8_0", ternary_values(3));
  add("blk.0.w.weight", "pq2_0", ternary_values(128));
  const ConvertReport report = convert("ptq1_0");
  EXPECT_EQ(type_of("token_embd.weight"), "q8_0");
  EXPECT_EQ(type_of("blk.0.w.weight"), "ptq1_0");
  EXPECT_THAT(report.notes, Contains(AllOf(HasSubstr("token_embd.weight"), HasSubstr("ptq1_0"))));
}

TEST_F(ConvertGgufTest, WidthsThatDoNotFitAreCounted) {
  add("blk.0.w.weight", "q2_0", ternary_values(128));
  for (const char* name : {"blk.0.a.weight", "blk.0.b.weight"})
    add(name, "f16", std::vector<float>(64, 0.5F), 64);
  const ConvertReport report = convert("ptq1_0");
  EXPECT_EQ(type_of("blk.0.a.weight"), "f16");
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_THAT(report.notes[0],
              AllOf(HasSubstr("blk.0.a.weight and 1 more"), HasSubstr("64"), HasSubstr("128")));
  builder_.tensors.erase(builder_.tensors.begin());
  std::filesystem::remove(output());
  EXPECT_THAT(failure("ptq1_0").message, AllOf(HasSubstr("no tensor"), HasSubstr("64")));
}

TEST_F(ConvertGgufTest, UnknownTypesAndDamageAreRefused) {
  add("blk.0.w.weight", "f32", ternary_values(128));
  builder_.tensor("blk.0.x.weight", {32}, 199, std::string(32, '\0'));
  const Thrown e = failure("auto");
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("blk.0.x.weight"), HasSubstr("199")));

  builder_.tensors.pop_back();
  auto values = ternary_values(128);
  values[300] = NAN;
  builder_.tensors[0].data = encode("f32", values);
  const Thrown nan = failure("f16");
  EXPECT_EQ(nan.code, ErrorCode::kFormat);
  EXPECT_THAT(nan.message, AllOf(HasSubstr("blk.0.w.weight"), HasSubstr("row 1, column 44")));

  const std::string whole = builder_.build();
  for (const size_t length : {size_t{0}, size_t{3}, size_t{40}, whole.size() - 100}) {
    test::write_file(dir_ / "cut.gguf", whole.substr(0, length));
    const Thrown cut = test::catch_error(
        [&] { convert_model(dir_ / "cut.gguf", output(), ConvertOptions{}, Progress{}); });
    EXPECT_EQ(cut.code, ErrorCode::kFormat) << length;
    EXPECT_FALSE(std::filesystem::exists(output()));
  }
}

TEST_F(ConvertGgufTest, DamagedBlocksAreNotCopied) {
  struct Case {
    const char* type;
    size_t block, byte;  // of a binary16 scale that becomes infinite
  };
  for (const Case& c : {Case{"q4_1", 9, 0}, Case{"q4_k", 3, 0}, Case{"q2_0", 2, 0},
                        Case{"f16", 700, 0}, Case{"tq2_0", 4, 64}}) {
    const Codec& codec = *find_codec(c.type);
    builder_.tensors.clear();
    add("blk.0.ok.weight", c.type, ternary_values(256));
    add("blk.0.w.weight", c.type, ternary_values(256));
    builder_.tensors[1].data.replace(c.block * codec.block_bytes + c.byte, 2,
                                     std::string("\x00\x7C", 2));
    const Thrown e = failure("auto");
    EXPECT_EQ(e.code, ErrorCode::kFormat) << c.type;
    EXPECT_THAT(e.message,
                AllOf(HasSubstr("in.gguf"), HasSubstr("blk.0.w.weight"),
                      HasSubstr("block " + std::to_string(c.block) + " "), HasSubstr(c.type)));
  }
  builder_.tensors.clear();
  auto values = ternary_values(128);
  values[300] = NAN;
  std::string bytes;
  for (const float v : values)
    test::append_value(bytes, v);
  builder_.tensor("blk.0.w.weight", {kCols, kRows}, static_cast<uint32_t>(TypeId::kF32), bytes);
  EXPECT_THAT(failure("auto").message, HasSubstr("block 300 "));
}

TEST_F(ConvertGgufTest, TheInputIsNeverTheOutput) {
  add("blk.0.w.weight", "f32", ternary_values(128));
  const std::string bytes = builder_.build();
  test::write_file(dir_ / "in.gguf", bytes);
  std::filesystem::create_symlink(dir_ / "in.gguf", dir_ / "link.gguf");
  ConvertOptions options;
  options.overwrite = true;
  for (const char* name : {"in.gguf", "link.gguf"}) {
    const Thrown e = test::catch_error(
        [&] { convert_model(dir_ / "in.gguf", dir_ / name, options, Progress{}); });
    EXPECT_EQ(e.code, ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_TRUE(test::read_file(dir_ / "in.gguf") == bytes);
}

TEST_F(ConvertGgufTest, ProgressGrowsToTheEnd) {
  add("blk.0.w.weight", "f32", std::vector<float>(kCols * 20000, 0.5F));
  Progress progress;
  uint64_t last = 0, total = 0;
  int calls = 0;
  progress.report = [&](std::string_view stage, uint64_t done, uint64_t all) {
    if (stage != "convert") return;
    EXPECT_GE(done, last);
    last = done;
    total = all;
    ++calls;
  };
  convert("bf16", false, progress);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, kCols * 20000 * 2);
  EXPECT_GT(calls, 3);
}

TEST_F(ConvertGgufTest, CancellingLeavesNothing) {
  add("blk.0.w.weight", "f32", std::vector<float>(kCols * 20000, 0.5F));
  CancelToken cancel;
  Progress progress;
  progress.cancel = &cancel;
  progress.report = [&](std::string_view, uint64_t done, uint64_t) {
    if (done > 0) cancel.cancel();
  };
  const Thrown e = test::catch_error([&] { convert("bf16", false, progress); });
  EXPECT_EQ(e.code, ErrorCode::kCancelled);
  for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
    EXPECT_EQ(entry.path().filename(), "in.gguf");
}

}  // namespace
}  // namespace ts
