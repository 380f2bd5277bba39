// Checkpoints of hybrid models (Qwen 3.5): order of the value heads, changed values, kinds of
// layers.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_builder.h"
#include "codec/codec.h"
#include "convert/convert.h"
#include "convert/hf_family.h"
#include "convert/row_order.h"
#include "format/gguf.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::CheckpointBuilder;
using test::Thrown;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kKeyHeads = 2, kValueHeads = 6, kState = 2;
constexpr int64_t kChannels = (2 * kKeyHeads + kValueHeads) * kState,
                  kValues = kValueHeads * kState;

/// A linear layer, then a full-attention one; six value heads on two key heads.
CheckpointBuilder hybrid() {
  CheckpointBuilder b;
  b.tensors.clear();
  b.config = {
      {"architectures", {"Qwen3_5ForConditionalGeneration"}},
      {"text_config",
       {{"hidden_size", 16},
        {"intermediate_size", 24},
        {"num_hidden_layers", 2},
        {"num_attention_heads", 2},
        {"num_key_value_heads", 1},
        {"head_dim", 8},
        {"full_attention_interval", 2},
        {"linear_conv_kernel_dim", 4},
        {"linear_key_head_dim", kState},
        {"linear_value_head_dim", kState},
        {"linear_num_key_heads", kKeyHeads},
        {"linear_num_value_heads", kValueHeads},
        {"max_position_embeddings", 64},
        {"rms_norm_eps", 1e-6},
        {"hidden_act", "silu"},
        {"rope_parameters",
         {{"rope_theta", 1e7},
          {"rope_type", "default"},
          {"partial_rotary_factor", 0.5},
          {"mrope_section", {1, 1, 0}}}},
        {"vocab_size", CheckpointBuilder::kVocab}}},
      {"tie_word_embeddings", false},
  };
  const auto layer = [&](int64_t i, const std::string& name, const std::vector<int64_t>& shape) {
    b.add("model.language_model.layers." + std::to_string(i) + "." + name, shape);
  };
  b.add("model.language_model.embed_tokens.weight", {CheckpointBuilder::kVocab, 16});
  b.add("model.language_model.norm.weight", {16});
  b.add("lm_head.weight", {CheckpointBuilder::kVocab, 16});
  for (int64_t i = 0; i < 2; ++i) {
    layer(i, "input_layernorm.weight", {16});
    layer(i, "post_attention_layernorm.weight", {16});
    layer(i, "mlp.gate_proj.weight", {24, 16});
    layer(i, "mlp.up_proj.weight", {24, 16});
    layer(i, "mlp.down_proj.weight", {16, 24});
  }
  layer(0, "linear_attn.in_proj_qkv.weight", {kChannels, 16});
  layer(0, "linear_attn.in_proj_z.weight", {kValues, 16});
  layer(0, "linear_attn.in_proj_a.weight", {kValueHeads, 16});
  layer(0, "linear_attn.in_proj_b.weight", {kValueHeads, 16});
  layer(0, "linear_attn.conv1d.weight", {kChannels, 1, 4});
  layer(0, "linear_attn.A_log", {kValueHeads});
  layer(0, "linear_attn.dt_bias", {kValueHeads});
  layer(0, "linear_attn.norm.weight", {kState});
  layer(0, "linear_attn.out_proj.weight", {16, kValues});
  layer(1, "self_attn.q_proj.weight", {32, 16});
  layer(1, "self_attn.k_proj.weight", {8, 16});
  layer(1, "self_attn.v_proj.weight", {8, 16});
  layer(1, "self_attn.o_proj.weight", {16, 16});
  layer(1, "self_attn.q_norm.weight", {8});
  layer(1, "self_attn.k_norm.weight", {8});
  b.add("mtp.fc.weight", {16, 32});
  b.add("mtp.layers.0.input_layernorm.weight", {16});
  b.add("model.visual.patch_embed.proj.weight", {4, 4});
  return b;
}

class ConvertHybridTest : public ::testing::Test {
 protected:
  ConvertReport convert() {
    builder_.write(dir_ / "model");
    ConvertOptions options;
    options.overwrite = true;
    ConvertReport report = convert_model(dir_ / "model", dir_ / "out.gguf", options, Progress{});
    file_ = GgufFile::open(dir_ / "out.gguf");
    return report;
  }
  Thrown failure() {
    return test::catch_error([&] { convert(); });
  }
  nlohmann::json& settings() { return builder_.config["text_config"]; }
  std::vector<float> read(const std::string& name) { return test::tensor_values(*file_, name); }
  /// The values that the checkpoint holds for a tensor of layer `i`.
  std::vector<float> stored(int64_t i, const std::string& name) const {
    const std::string whole = "model.language_model.layers." + std::to_string(i) + "." + name;
    return CheckpointBuilder::values(whole, builder_.tensors.at(whole).shape);
  }
  /// Rows of `values` in another order.
  static std::vector<float> rows(const std::vector<float>& values, size_t width,
                                 const std::vector<size_t>& order) {
    std::vector<float> out;
    for (const size_t r : order)
      out.insert(out.end(), values.begin() + static_cast<std::ptrdiff_t>(r * width),
                 values.begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
    return out;
  }

  test::TempDir dir_;
  CheckpointBuilder builder_ = hybrid();
  std::shared_ptr<const GgufFile> file_;
};

// Three value heads per key head: with two, both directions of the map are the same.
const std::vector<size_t> kHeads = {0, 3, 1, 4, 2, 5};
const std::vector<size_t> kValueRows = {0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11};

TEST(ValueHeads, BothDirections) {
  std::vector<int64_t> there, back, rows;
  for (int64_t i = 0; i < 6; ++i) {
    there.push_back(grouped_source_head(i, 2, 3));
    back.push_back(tiled_source_head(i, 2, 3));
    EXPECT_EQ(tiled_source_head(grouped_source_head(i, 2, 3), 2, 3), i);
  }
  EXPECT_THAT(there, ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(back, ElementsAre(0, 2, 4, 1, 3, 5));
  for (int64_t i = 0; i < 16; ++i)
    rows.push_back(grouped_source_index(i, 8, 2, 2, 2));
  EXPECT_THAT(rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  EXPECT_EQ(grouped_source_head(1, 16, 3), 3);  // 48 heads: 0 3 6 ... 45, 1 4 ...
  EXPECT_EQ(grouped_source_head(16, 16, 3), 1);
  EXPECT_EQ(tiled_source_head(1, 16, 3), 16);
}

TEST_F(ConvertHybridTest, ValueHeadsBecomeTiled) {
  const ConvertReport report = convert();
  EXPECT_EQ(report.architecture, "qwen35");
  EXPECT_TRUE(report.lossless);
  std::vector<size_t> channels = {0, 1, 2, 3, 4, 5, 6, 7};
  for (const size_t r : kValueRows)
    channels.push_back(8 + r);
  EXPECT_EQ(read("blk.0.attn_qkv.weight"),
            rows(stored(0, "linear_attn.in_proj_qkv.weight"), 16, channels));
  EXPECT_EQ(read("blk.0.attn_gate.weight"),
            rows(stored(0, "linear_attn.in_proj_z.weight"), 16, kValueRows));
  EXPECT_EQ(read("blk.0.ssm_alpha.weight"),
            rows(stored(0, "linear_attn.in_proj_a.weight"), 16, kHeads));
  EXPECT_EQ(read("blk.0.ssm_beta.weight"),
            rows(stored(0, "linear_attn.in_proj_b.weight"), 16, kHeads));
  EXPECT_EQ(read("blk.0.ssm_conv1d.weight"),
            rows(stored(0, "linear_attn.conv1d.weight"), 4, channels));
  EXPECT_EQ(file_->find("blk.0.ssm_conv1d.weight")->shape, (Shape{4, kChannels}));
  EXPECT_EQ(read("blk.0.ssm_dt.bias"), rows(stored(0, "linear_attn.dt_bias"), 1, kHeads));
  EXPECT_EQ(file_->find("blk.0.ssm_dt.bias")->shape, (Shape{kValueHeads}));
  const auto out = stored(0, "linear_attn.out_proj.weight");
  std::vector<float> tiled;
  for (size_t r = 0; r < 16; ++r) {
    for (const size_t c : kValueRows)
      tiled.push_back(out[r * kValues + c]);
  }
  EXPECT_EQ(read("blk.0.ssm_out.weight"), tiled);
  // Attention is stored as it is, queries and gates interleaved.
  EXPECT_EQ(read("blk.1.attn_q.weight"), stored(1, "self_attn.q_proj.weight"));
}

TEST_F(ConvertHybridTest, NormsGetOneAndDecaysTheirSign) {
  const std::string a_log = "model.language_model.layers.0.linear_attn.A_log";
  builder_.tensors[a_log] = {
      "F32", {kValueHeads}, test::f32_bytes({0, 1.3862944F, -0.6931472F, 2.7725887F, 1, -1})};
  convert();
  const auto a = read("blk.0.ssm_a");
  const double want[] = {-1, -16, -4, -std::exp(1.0), -0.5, -std::exp(-1.0)};
  ASSERT_EQ(a.size(), 6u);
  for (size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(a[i], want[i], 4e-7 * std::abs(want[i])) << i;
  EXPECT_EQ(file_->find("blk.0.ssm_a")->type, TypeId::kF32);

  const auto plus_one = [](std::vector<float> values) {
    for (float& v : values)
      v += 1.0F;
    return values;
  };
  EXPECT_EQ(read("blk.0.attn_norm.weight"), plus_one(stored(0, "input_layernorm.weight")));
  EXPECT_EQ(read("blk.0.post_attention_norm.weight"),
            plus_one(stored(0, "post_attention_layernorm.weight")));
  EXPECT_EQ(read("blk.1.attn_q_norm.weight"), plus_one(stored(1, "self_attn.q_norm.weight")));
  EXPECT_EQ(read("blk.1.attn_k_norm.weight"), plus_one(stored(1, "self_attn.k_norm.weight")));
  EXPECT_EQ(read("output_norm.weight"),
            plus_one(CheckpointBuilder::values("model.language_model.norm.weight", {16})));
  EXPECT_EQ(read("blk.0.ssm_norm.weight"), stored(0, "linear_attn.norm.weight"));
}

TEST_F(ConvertHybridTest, WritesItsSettings) {
  const ConvertReport report = convert();
  const Metadata& m = file_->metadata();
  const auto integer = [&](const std::string& key) {
    return m.get_int("qwen35." + key, 0, 1 << 20).value_or(-1);
  };
  EXPECT_EQ(integer("block_count"), 2);
  EXPECT_EQ(integer("ssm.conv_kernel"), 4);
  EXPECT_EQ(integer("ssm.state_size"), kState);
  EXPECT_EQ(integer("ssm.group_count"), kKeyHeads);
  EXPECT_EQ(integer("ssm.time_step_rank"), kValueHeads);
  EXPECT_EQ(integer("ssm.inner_size"), kValues);
  EXPECT_EQ(integer("full_attention_interval"), 2);
  EXPECT_EQ(integer("rope.dimension_count"), 4);
  EXPECT_THAT(*m.get_ints("qwen35.rope.dimension_sections", 0, 99), ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(m.get_float("qwen35.rope.freq_base"), 1e7);
  EXPECT_FALSE(m.contains("qwen35.attention.recurrent_layers"));
  EXPECT_FALSE(m.contains("qwen35.nextn_predict_layers"));
  EXPECT_EQ(file_->tensors().size(), 3u + 14 + 11);
  EXPECT_EQ(report.skipped.size(), 3u);
  EXPECT_THAT(report.skipped[1].reason, HasSubstr("multi-token prediction"));
}

TEST_F(ConvertHybridTest, KindsOfLayersFromTheList) {
  settings().erase("full_attention_interval");
  settings()["layer_types"] = {"linear_attention", "full_attention"};
  convert();
  EXPECT_EQ(file_->metadata().get_int("qwen35.full_attention_interval", 0, 99), 2);
  // An irregular list is written out.
  const HfConfig config = HfConfig::parse(
      nlohmann::json{{"architectures", {"Qwen3_5ForCausalLM"}},
                     {"hidden_size", 16},
                     {"intermediate_size", 24},
                     {"num_hidden_layers", 3},
                     {"num_attention_heads", 2},
                     {"num_key_value_heads", 1},
                     {"rope_theta", 1e7},
                     {"layer_types", {"full_attention", "linear_attention", "linear_attention"}}}
          .dump(),
      "config.json");
  const HfSizes sizes = read_hf_sizes(config, kQwen35Family);
  EXPECT_EQ(sizes.head_dim, 256);
  EXPECT_EQ(sizes.n_k_heads, 16);
  EXPECT_EQ(sizes.n_v_heads, 32);
  Metadata m;
  std::vector<std::string> notes;
  write_hf_metadata(config, kQwen35Family, sizes, m, notes);
  EXPECT_THAT(*m.get_bools("qwen35.attention.recurrent_layers"), ElementsAre(false, true, true));
  EXPECT_EQ(m.get_int("qwen35.rope.dimension_count", 0, 999), 64);
  EXPECT_THAT(*m.get_ints("qwen35.rope.dimension_sections", 0, 99), ElementsAre(32, 0, 0, 0));
}

TEST_F(ConvertHybridTest, RefusesWhatItCannotExpress) {
  const std::vector<std::pair<std::string, nlohmann::json>> cases = {
      {"linear_value_head_dim", 4},
      {"linear_num_value_heads", 5},
      {"linear_num_key_heads", 0},
      {"linear_conv_kernel_dim", 99},
      {"linear_key_head_dim", -1},
      {"attn_output_gate", false},
      {"output_gate_type", "sigmoid"},
      {"attention_bias", true},
      {"layer_types", {"linear_attention"}},
      {"layer_types", {"linear_attention", "sliding_attention"}},
      {"num_experts", 4},
      {"hidden_act", "gelu"},
  };
  for (const auto& [key, value] : cases) {
    builder_ = hybrid();
    settings()[key] = value;
    EXPECT_THAT(failure().message, AllOf(HasSubstr("config.json"), HasSubstr(key))) << value;
  }
  for (const double part : {0.0, 0.4, 1.5, -1.0}) {
    builder_ = hybrid();
    settings()["rope_parameters"]["partial_rotary_factor"] = part;
    EXPECT_THAT(failure().message, HasSubstr("partial_rotary_factor")) << part;
  }
  builder_ = hybrid();
  settings()["rope_parameters"].erase("rope_theta");
  EXPECT_THAT(failure().message, HasSubstr("rope_theta"));
  for (const nlohmann::json& list :
       {nlohmann::json(3), nlohmann::json{1, -1}, nlohmann::json{1, 2, 3, 4, 5}}) {
    builder_ = hybrid();
    settings()["rope_parameters"]["mrope_section"] = list;
    EXPECT_THAT(failure().message, HasSubstr("mrope_section")) << list;
  }
}

TEST_F(ConvertHybridTest, ConvolutionsOfOtherExportsAreRefused) {
  const std::string conv = "model.language_model.layers.0.linear_attn.conv1d.weight";
  builder_.add(conv, {kChannels, 4, 1});
  EXPECT_THAT(failure().message, AllOf(HasSubstr("conv1d"), HasSubstr("MLX")));
  builder_ = hybrid();
  builder_.add(conv, {kChannels, 1, 3});
  EXPECT_THAT(failure().message, AllOf(HasSubstr("conv1d"), HasSubstr("[20, 4]")));
}

TEST_F(ConvertHybridTest, TensorsOfTheOtherKindOfLayerAreNamed) {
  builder_.add("model.language_model.layers.0.self_attn.q_norm.weight", {8});
  EXPECT_THAT(failure().message, HasSubstr("layers.0.self_attn.q_norm.weight"));
  builder_ = hybrid();
  builder_.tensors.erase("model.language_model.layers.0.linear_attn.A_log");
  EXPECT_THAT(failure().message, AllOf(HasSubstr("missing"), HasSubstr("linear_attn.A_log")));
}

}  // namespace
}  // namespace ts
