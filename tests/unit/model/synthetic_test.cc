// Models of random weights: the published model's tensors, sizes and metadata; sound contents.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/codec.h"
#include "format/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/synthetic/synthetic_model.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"
#include "text/tokenizer.h"

namespace ts {
namespace {

using test::catch_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

SyntheticModel make(std::string_view shape, std::string scheme = {},
                    std::optional<int64_t> n_layers = {}, uint64_t seed = 1) {
  return SyntheticModel(find_synthetic_shape(shape), {std::move(scheme), n_layers, seed});
}

const SyntheticTensor* find(const SyntheticModel& model, std::string_view name) {
  for (const SyntheticTensor& t : model.tensors()) {
    if (t.info.name == name) return &t;
  }
  return nullptr;
}

/// The sizes of the published files' tensor data; none of these models takes memory here.
TEST(SyntheticModelTest, The27BModelHasThePublishedSizes) {
  const std::map<std::string, uint64_t> published = {
      {"ptq1_0", 5'935'527'936}, {"pq2_0", 7'195'047'936}, {"q2_0", 7'614'887'936}};
  for (const auto& [scheme, bytes] : published) {
    const SyntheticModel model = make("ternary-bonsai-2-27b", scheme);
    EXPECT_EQ(model.tensor_bytes(), bytes) << scheme;
    EXPECT_EQ(model.n_parameters(), 26'895'998'464) << scheme;
    EXPECT_EQ(model.tensors().size(), 851u);
    std::map<std::string, int> types;
    std::vector<GgufOutputTensor> infos;
    for (const SyntheticTensor& t : model.tensors()) {
      ++types[type_name(t.info.type)];
      infos.push_back(t.info);
    }
    EXPECT_EQ(types, (std::map<std::string, int>{{"bf16", 96}, {"f32", 353}, {scheme, 402}}));
    // Nothing of it needs padding, so this is also the size of a file's data.
    EXPECT_EQ(lay_out_gguf("m", model.metadata(), infos).data_bytes, bytes);
  }
}

TEST(SyntheticModelTest, The27BModelHasThePublishedTensors) {
  const SyntheticModel model = make("ternary-bonsai-2-27b");
  EXPECT_EQ(model.scheme(), "ptq1_0");
  const std::map<std::string, Shape> expected = {
      {"token_embd.weight", {5120, 248320}},
      {"output.weight", {5120, 248320}},
      {"output_norm.weight", {5120}},
      {"blk.0.attn_qkv.weight", {5120, 10240}},
      {"blk.0.attn_gate.weight", {5120, 6144}},
      {"blk.62.ssm_out.weight", {6144, 5120}},
      {"blk.0.ssm_conv1d.weight", {4, 10240}},
      {"blk.0.ssm_alpha.weight", {5120, 48}},
      {"blk.0.ssm_beta.weight", {5120, 48}},
      {"blk.0.ssm_dt.bias", {48}},
      {"blk.0.ssm_a", {48}},
      {"blk.0.ssm_norm.weight", {128}},
      {"blk.3.attn_q.weight", {5120, 12288}},
      {"blk.3.attn_k.weight", {5120, 1024}},
      {"blk.63.attn_v.weight", {5120, 1024}},
      {"blk.63.attn_output.weight", {6144, 5120}},
      {"blk.63.attn_q_norm.weight", {256}},
      {"blk.63.attn_k_norm.weight", {256}},
      {"blk.5.attn_norm.weight", {5120}},
      {"blk.5.post_attention_norm.weight", {5120}},
      {"blk.5.ffn_gate.weight", {5120, 17408}},
      {"blk.5.ffn_up.weight", {5120, 17408}},
      {"blk.63.ffn_down.weight", {17408, 5120}},
  };
  for (const auto& [name, shape] : expected) {
    const SyntheticTensor* t = find(model, name);
    ASSERT_NE(t, nullptr) << name;
    EXPECT_EQ(t->info.shape, shape) << name;
  }
  EXPECT_EQ(find(model, "blk.3.attn_qkv.weight"), nullptr);
  EXPECT_EQ(find(model, "blk.4.attn_q.weight"), nullptr);
  EXPECT_EQ(find(model, "blk.64.attn_norm.weight"), nullptr);
  EXPECT_EQ(find(model, "blk.0.ssm_alpha.weight")->info.type, TypeId::kBF16);
}

TEST(SyntheticModelTest, The27BModelDeclaresItsRotation) {
  const SyntheticModel model = make("ternary-bonsai-2-27b", "pq2_0");
  const Metadata& m = model.metadata();
  EXPECT_EQ(m.get_string("general.architecture"), "qwen35");
  EXPECT_EQ(m.get_int("general.file_type", 0, 1000), 141);
  EXPECT_EQ(m.get_int("qwen35.block_count", 0, 1000), 64);
  EXPECT_EQ(m.get_int("qwen35.ssm.time_step_rank", 0, 1000), 48);
  EXPECT_EQ(m.get_int("qwen35.ssm.inner_size", 0, 10000), 6144);
  EXPECT_THAT(*m.get_ints("qwen35.rope.dimension_sections", 0, 100), ElementsAre(11, 11, 10, 0));
  EXPECT_EQ(m.get_int("prism.hadamard.version", 0, 9), 1);
  EXPECT_EQ(m.get_int("prism.hadamard.block_size", 0, 9999), 1024);
  EXPECT_EQ(m.get_bool("prism.hadamard.gdn_v_grouped"), true);
  EXPECT_FALSE(m.contains("prism.hadamard.tied_output"));
  EXPECT_THAT(*m.get_ints("prism.hadamard.sign_widths", 0, 99999), ElementsAre(5120, 6144, 17408));
  const auto signs = *m.get_ints("prism.hadamard.sign_values", -1, 1);
  EXPECT_EQ(signs.size(), 28672u);
  const auto plus = std::count(signs.begin(), signs.end(), 1);
  EXPECT_EQ(plus + std::count(signs.begin(), signs.end(), -1), 28672);
  EXPECT_NEAR(static_cast<double>(plus), 14336, 500);
  EXPECT_THAT(*m.get_strings("prism.hadamard.inverse_weight_names"),
              ElementsAre("token_embd.weight"));
  // 273 folded matrices of width 5120, 64 of 6144, 64 of 17408.
  std::map<int64_t, int> widths;
  for (const std::string& name : *m.get_strings("prism.hadamard.weight_names")) {
    ASSERT_NE(find(model, name), nullptr) << name;
    EXPECT_THAT(name, ::testing::Not(HasSubstr("ssm_alpha")));
    ++widths[find(model, name)->info.shape[0]];
  }
  EXPECT_EQ(widths, (std::map<int64_t, int>{{5120, 273}, {6144, 64}, {17408, 64}}));
  // Types that are no ternary ones are stored as they are computed with.
  EXPECT_FALSE(make("qwen35-tiny", "q8_0").metadata().contains("prism.hadamard.version"));
  EXPECT_EQ(make("qwen3-1.7b").metadata().get_int("prism.hadamard.version", 0, 9), 2);
  EXPECT_EQ(make("qwen3-1.7b").metadata().get_bool("prism.hadamard.tied_output"), true);
}

TEST(SyntheticModelTest, The27BTokenizerHasThePublishedSizes) {
  const SyntheticModel model = make("ternary-bonsai-2-27b");
  TokenizerData data = read_gguf_tokenizer(model.metadata());
  EXPECT_EQ(data.tokens.size(), 248320u);
  EXPECT_EQ(data.merges.size(), 247587u);
  EXPECT_EQ(std::set<std::string>(data.tokens.begin(), data.tokens.end()).size(), 248320u);
  const auto tokenizer = Tokenizer::create(std::move(data));
  EXPECT_EQ(tokenizer->find_token("<|endoftext|>"), 248044);
  EXPECT_EQ(tokenizer->find_token("<|im_end|>"), 248046);
  EXPECT_EQ(tokenizer->find_token("</tool_response>"), 248067);
  EXPECT_EQ(tokenizer->find_token("</think>"), 248069);
  EXPECT_EQ(tokenizer->find_token("<|audio_pad|>"), 248076);
  EXPECT_TRUE(tokenizer->is_end(248046));
  EXPECT_TRUE(tokenizer->is_end(248044));
  EXPECT_EQ(tokenizer->token_type(248068), TokenType::kUserDefined);
  EXPECT_FALSE(tokenizer->adds_bos());
  const std::string text = "The quick brown f\xC3\xB6x, 12 times:\n\t<think>\xF0\x9F\xA6\x8A";
  const auto ids = tokenizer->encode(text, {});
  EXPECT_EQ(tokenizer->decode(ids, true), text);
  EXPECT_LT(ids.size(), 36u);  // letters do merge
}

TEST(SyntheticModelTest, EveryShapeCanBeMade) {
  for (const SyntheticShape& shape : all_synthetic_shapes()) {
    const SyntheticModel model = make(shape.name);
    EXPECT_EQ(model.scheme(), shape.scheme);
    TokenizerData data = read_gguf_tokenizer(model.metadata());
    EXPECT_EQ(static_cast<int64_t>(data.tokens.size()),
              find(model, "token_embd.weight")->info.shape[1]);
    EXPECT_NO_THROW(Tokenizer::create(std::move(data)));
    const SyntheticModel one = make(shape.name, {}, 1);
    EXPECT_EQ(one.metadata().get_int(std::string(shape.architecture) + ".block_count", 0, 99), 1);
    EXPECT_NE(find(one, "blk.0.attn_norm.weight"), nullptr);
    EXPECT_EQ(find(one, "blk.1.attn_norm.weight"), nullptr);
  }
}

TEST(SyntheticModelTest, WhatCannotBeMadeIsSaid) {
  auto thrown = catch_error([] { find_synthetic_shape("bonsai"); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.message, HasSubstr("ternary-bonsai-2-27b"));
  thrown = catch_error([] { make("qwen35-tiny", "q9_9"); });
  EXPECT_EQ(thrown.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(thrown.message, HasSubstr("q9_9"));
  EXPECT_EQ(catch_error([] { make("qwen35-tiny", "i32"); }).code, ErrorCode::kInvalidArgument);
  thrown = catch_error([] { make("smollm2-135m", "ptq1_0"); });
  EXPECT_THAT(thrown.message, HasSubstr("576"));
  EXPECT_THAT(thrown.message, HasSubstr("q2_0"));
  thrown = catch_error([] { make("qwen35-tiny", {}, 5); });
  EXPECT_THAT(thrown.message, HasSubstr("1 to 4"));
  EXPECT_EQ(catch_error([] { make("qwen35-tiny", {}, 0); }).code, ErrorCode::kInvalidArgument);
}

std::vector<std::byte> all_bytes(const SyntheticImage& image) {
  const auto bytes = image.file()->parts()[0]->bytes();
  return {bytes.begin(), bytes.end()};
}

TEST(SyntheticImageTest, ImageAndFileAreTheSameBytes) {
  for (const char* scheme : {"ptq1_0", "pq2_0", "q2_0", "q8_0", "f16"}) {
    const SyntheticModel model = make("qwen35-tiny", scheme);
    SyntheticImage one(model), three(model);
    one.fill(model, 1, {});
    three.fill(model, 3, {});
    const auto bytes = all_bytes(one);
    EXPECT_EQ(bytes, all_bytes(three)) << "threads matter";

    const test::TempDir dir;
    EXPECT_EQ(model.write(dir / "m.gguf", false, {}), bytes.size());
    const auto file = GgufFile::open(dir / "m.gguf");
    const auto written = file->parts()[0]->bytes();
    EXPECT_TRUE(std::equal(written.begin(), written.end(), bytes.begin(), bytes.end())) << scheme;
    EXPECT_EQ(catch_error([&] { model.write(dir / "m.gguf", false, {}); }).code,
              ErrorCode::kInvalidArgument);
    EXPECT_NO_THROW(model.write(dir / "m.gguf", true, {}));
  }
}

TEST(SyntheticImageTest, TheSeedDecides) {
  const auto bytes_of = [](uint64_t seed) {
    const SyntheticModel model = make("qwen35-tiny", "pq2_0", 1, seed);
    SyntheticImage image(model);
    image.fill(model, 1, {});
    const auto data = image.file()->find("blk.0.ffn_up.weight")->data;
    return std::vector<std::byte>(data.begin(), data.end());
  };
  EXPECT_EQ(bytes_of(7), bytes_of(7));
  EXPECT_NE(bytes_of(7), bytes_of(8));
}

std::vector<float> decode(const GgufFile& file, const std::string& name) {
  const TensorEntry& t = *file.find(name);
  std::vector<float> values(static_cast<size_t>(t.shape.n_elems()));
  find_codec(t.type)->decode(t.data.data(), values.data(), values.size());
  return values;
}

TEST(SyntheticImageTest, ContentsAreSound) {
  for (const char* scheme : {"ptq1_0", "pq2_0", "q2_0", "q8_0", "f16"}) {
    const SyntheticModel model = make("qwen35-tiny", scheme);
    SyntheticImage image(model);
    EXPECT_EQ(decode(*image.file(), "output_norm.weight")[0], 0) << "filled before fill()";
    image.fill(model, 2, {});
    for (const SyntheticTensor& t : model.tensors()) {
      const auto values = decode(*image.file(), t.info.name);
      ASSERT_TRUE(std::all_of(values.begin(), values.end(), [](float v) {
        return std::isfinite(v);
      })) << t.info.name;
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      switch (t.content) {
        case SyntheticContent::kNorm:
          EXPECT_TRUE(*low >= 0.9F && *high <= 1.1F && *low < *high) << t.info.name;
          break;
        case SyntheticContent::kDecayRate:
          EXPECT_TRUE(*low >= -16 && *high <= -1 && *low < *high) << t.info.name;
          break;
        case SyntheticContent::kTimeStepBias:
          EXPECT_TRUE(*low >= -6.9F && *high <= -2.29F && *low < *high) << t.info.name;
          break;
        case SyntheticContent::kConvolution:
          EXPECT_TRUE(*low >= -0.5F && *high <= 0.5F && *low < *high) << t.info.name;
          break;
        case SyntheticContent::kMatrix: {
          double sum = 0, squares = 0, zeros = 0;
          for (const float v : values) {
            sum += v;
            squares += static_cast<double>(v) * v;
            zeros += v == 0 ? 1 : 0;
          }
          const auto n = static_cast<double>(values.size());
          const auto width = static_cast<double>(t.info.shape[0]);
          EXPECT_NEAR(squares / n * width, 1.0, 0.1) << t.info.name;
          EXPECT_NEAR(sum / n * std::sqrt(width), 0.0, 0.1) << t.info.name;
          if (find_codec(t.info.type)->is_ternary()) {
            EXPECT_NEAR(zeros / n, 0.333, 0.02) << t.info.name;
          }
          break;
        }
      }
    }
    // All rows of a matrix differ.
    const auto rows = decode(*image.file(), "blk.0.ffn_up.weight");
    std::set<std::vector<float>> distinct;
    for (size_t i = 0; i < rows.size(); i += 256)
      distinct.insert(std::vector<float>(rows.begin() + static_cast<std::ptrdiff_t>(i),
                                         rows.begin() + static_cast<std::ptrdiff_t>(i + 256)));
    EXPECT_EQ(distinct.size(), rows.size() / 256) << scheme;
  }
}

TEST(SyntheticImageTest, WorkCanBeStopped) {
  CancelToken cancel;
  Progress progress;
  progress.cancel = &cancel;
  const test::TempDir dir;
  int reports = 0;
  progress.report = [&](std::string_view stage, uint64_t, uint64_t) {
    if (stage == "writing" && ++reports == 5) cancel.cancel();
  };
  const SyntheticModel model = make("qwen35-tiny");
  EXPECT_EQ(catch_error([&] { model.write(dir / "m.gguf", false, progress); }).code,
            ErrorCode::kCancelled);
  EXPECT_EQ(reports, 5);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "half a file is left";
}

}  // namespace
}  // namespace ts
