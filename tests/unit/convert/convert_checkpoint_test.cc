#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint_builder.h"
#include "convert/convert.h"
#include "convert/hf_tensors.h"
#include "convert/row_order.h"
#include "format/gguf.h"
#include "support/error_matchers.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::CheckpointBuilder;
using test::Thrown;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConvertCheckpointTest : public ::testing::Test {
 protected:
  ConvertReport convert(const ConvertOptions& options = {}) {
    builder_.write(dir_ / "model");
    return convert_model(dir_ / "model", output(), options, Progress{});
  }
  ConvertReport convert(const std::string& type, bool lossy = false) {
    ConvertOptions options;
    options.type = type;
    options.lossy = lossy;
    options.overwrite = true;
    return convert(options);
  }
  /// What convert() throws; nothing may be left beside the checkpoint.
  Thrown failure(const ConvertOptions& options = {}) {
    const Thrown e = test::catch_error([&] { convert(options); });
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      EXPECT_EQ(entry.path().filename(), "model");
    return e;
  }
  std::filesystem::path output() const { return dir_ / "out.gguf"; }
  std::vector<float> read(const std::string& name) {
    file_ = GgufFile::open(output());
    return test::tensor_values(*file_, name);
  }
  TypeId type_of(const std::string& name) {
    file_ = GgufFile::open(output());
    return file_->find(name)->type;
  }

  test::TempDir dir_;
  CheckpointBuilder builder_;
  std::shared_ptr<const GgufFile> file_;
};

TEST_F(ConvertCheckpointTest, WritesSettingsAndTokenizer) {
  const ConvertReport report = convert();
  EXPECT_EQ(report.architecture, "llama");
  EXPECT_TRUE(report.lossless);
  EXPECT_EQ(report.output_bytes, std::filesystem::file_size(output()));
  const auto file = GgufFile::open(output());
  const Metadata& m = file->metadata();
  EXPECT_EQ(m.get_string("general.architecture"), "llama");
  EXPECT_EQ(m.get_string("general.name"), "model");
  EXPECT_EQ(m.get_int("general.file_type", 0, 999), 32);  // mostly bf16
  EXPECT_EQ(m.get_int("llama.block_count", 0, 99), 1);
  EXPECT_EQ(m.get_int("llama.embedding_length", 0, 99), 32);
  EXPECT_EQ(m.get_int("llama.feed_forward_length", 0, 99), 64);
  EXPECT_EQ(m.get_int("llama.attention.head_count", 0, 99), 4);
  EXPECT_EQ(m.get_int("llama.attention.head_count_kv", 0, 99), 2);
  EXPECT_EQ(m.get_int("llama.attention.key_length", 0, 99), 8);
  EXPECT_EQ(m.get_int("llama.rope.dimension_count", 0, 99), 8);
  EXPECT_EQ(m.get_int("llama.context_length", 0, 999), 128);
  EXPECT_FLOAT_EQ(static_cast<float>(*m.get_float("llama.attention.layer_norm_rms_epsilon")),
                  1e-5F);
  EXPECT_EQ(m.get_string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(m.get_string("tokenizer.ggml.pre"), "llama-bpe");
  ASSERT_NE(m.get_strings("tokenizer.ggml.tokens"), nullptr);
  EXPECT_EQ(m.get_strings("tokenizer.ggml.tokens")->size(), 320u);
  EXPECT_EQ(m.get_int("tokenizer.ggml.bos_token_id", 0, 999), 0);
  EXPECT_EQ(m.get_bool("tokenizer.ggml.add_bos_token"), true);
  EXPECT_THAT(m.get_string("tokenizer.chat_template").value_or(""), HasSubstr("<|eot_id|>"));
  // token_embd, output_norm and nine tensors of the layer; the head is tied.
  EXPECT_EQ(file->tensors().size(), 11u);
  EXPECT_EQ(file->find("output.weight"), nullptr);
}

TEST_F(ConvertCheckpointTest, ReordersQueriesAndKeysButNothingElse) {
  convert();
  const auto reordered = [&](const std::string& name, int64_t n_rows) {
    const auto values = builder_.layer_values(name);
    std::vector<float> out;
    for (int64_t r = 0; r < n_rows; ++r) {
      const auto from = values.begin() + llama_source_row(r, 8) * 32;
      out.insert(out.end(), from, from + 32);
    }
    return out;
  };
  EXPECT_THAT(read("blk.0.attn_q.weight"),
              ElementsAreArray(reordered("self_attn.q_proj.weight", 32)));
  EXPECT_THAT(read("blk.0.attn_k.weight"),
              ElementsAreArray(reordered("self_attn.k_proj.weight", 16)));
  for (const auto& [gguf, hf] : {std::pair{"attn_v", "self_attn.v_proj"},
                                 {"attn_output", "self_attn.o_proj"},
                                 {"ffn_gate", "mlp.gate_proj"},
                                 {"ffn_up", "mlp.up_proj"},
                                 {"ffn_down", "mlp.down_proj"},
                                 {"attn_norm", "input_layernorm"},
                                 {"ffn_norm", "post_attention_layernorm"}}) {
    EXPECT_THAT(read("blk.0." + std::string(gguf) + ".weight"),
                ElementsAreArray(builder_.layer_values(std::string(hf) + ".weight")))
        << gguf;
  }
  EXPECT_EQ(type_of("blk.0.attn_norm.weight"), TypeId::kF32);
  EXPECT_EQ(type_of("blk.0.attn_q.weight"), TypeId::kBF16);
  EXPECT_EQ(file_->find("blk.0.ffn_down.weight")->shape, (Shape{64, 32}));
}

TEST_F(ConvertCheckpointTest, ReordersBiases) {
  builder_.add_layer("self_attn.q_proj.bias", {32});
  builder_.add_layer("self_attn.v_proj.bias", {16});
  convert();
  const auto bias = builder_.layer_values("self_attn.q_proj.bias");
  std::vector<float> expected;
  for (int64_t r = 0; r < 32; ++r)
    expected.push_back(bias[static_cast<size_t>(llama_source_row(r, 8))]);
  EXPECT_THAT(read("blk.0.attn_q.bias"), ElementsAreArray(expected));
  EXPECT_THAT(read("blk.0.attn_v.bias"),
              ElementsAreArray(builder_.layer_values("self_attn.v_proj.bias")));
}

TEST_F(ConvertCheckpointTest, Gemma3NormsGetOneInF32) {
  builder_.config["architectures"] = {"Gemma3ForCausalLM"};
  builder_.config["hidden_act"] = nullptr;
  builder_.config["head_dim"] = 8;
  builder_.config["query_pre_attn_scalar"] = 8;
  for (const char* norm : {"pre_feedforward_layernorm", "post_feedforward_layernorm"})
    builder_.add_layer(norm + std::string(".weight"), {32});
  builder_.add_layer("self_attn.q_norm.weight", {8});
  builder_.add_layer("self_attn.k_norm.weight", {8});
  // 1.2578125 + 1 is no bf16; 0.00390625 + 1 neither.
  std::vector<float> norm(32, 0.0F);
  norm[1] = -0.5F;
  norm[2] = 1.2578125F;
  norm[3] = 0.00390625F;
  builder_.tensors["model.norm.weight"].data = test::bf16_bytes(norm);
  convert();
  const auto written = read("output_norm.weight");
  EXPECT_EQ(written[0], 1.0F);
  EXPECT_EQ(written[1], 0.5F);
  EXPECT_EQ(written[2], 2.2578125F);
  EXPECT_EQ(written[3], 1.00390625F);
  const auto plus_one = [&](const std::string& name) {
    auto values = builder_.layer_values(name);
    for (float& v : values)
      v += 1.0F;
    return values;
  };
  for (const auto& [gguf, hf] : {std::pair{"post_attention_norm", "post_attention_layernorm"},
                                 {"ffn_norm", "pre_feedforward_layernorm"},
                                 {"post_ffw_norm", "post_feedforward_layernorm"},
                                 {"attn_q_norm", "self_attn.q_norm"}}) {
    EXPECT_THAT(read("blk.0." + std::string(gguf) + ".weight"),
                ElementsAreArray(plus_one(std::string(hf) + ".weight")))
        << gguf;
  }
  EXPECT_THAT(read("blk.0.attn_q.weight"),  // no reordering
              ElementsAreArray(builder_.layer_values("self_attn.q_proj.weight")));
}

TEST_F(ConvertCheckpointTest, EverySourceTensorIsAccountedForOnce) {
  builder_.add("model.layers.0.self_attn.rotary_emb.inv_freq", {4});
  builder_.add("vision_tower.encoder.weight", {4, 4});
  builder_.tensors["lm_head.weight"] = builder_.tensors["model.embed_tokens.weight"];
  const ConvertReport report = convert();
  std::multiset<std::string> seen;
  for (const ConvertedTensor& tensor : report.tensors)
    seen.insert(tensor.sources.begin(), tensor.sources.end());
  for (const SkippedTensor& tensor : report.skipped) {
    seen.insert(tensor.name);
    EXPECT_FALSE(tensor.reason.empty());
  }
  std::multiset<std::string> expected;
  for (const auto& [name, tensor] : builder_.tensors)
    expected.insert(name);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(report.skipped.size(), 3u);
}

TEST_F(ConvertCheckpointTest, HeadsTiedAndNot) {
  builder_.config["tie_word_embeddings"] = false;
  EXPECT_THAT(failure().message, AllOf(HasSubstr("lm_head.weight"), HasSubstr("config.json")));
  builder_.add("lm_head.weight", {320, 32});
  convert("auto");
  EXPECT_THAT(read("output.weight"),
              ElementsAreArray(CheckpointBuilder::values("lm_head.weight", {320, 32})));
  builder_.config["tie_word_embeddings"] = true;
  const ConvertReport kept = convert("auto");
  EXPECT_NE(GgufFile::open(output())->find("output.weight"), nullptr);
  EXPECT_THAT(kept.notes, Contains(HasSubstr("lm_head.weight differs")));
}

TEST_F(ConvertCheckpointTest, PrefixesOfExportsAreAccepted) {
  std::map<std::string, test::StoredTensor> renamed;
  for (const auto& [name, tensor] : builder_.tensors)
    renamed[name.substr(std::string("model.").size())] = tensor;
  builder_.tensors = renamed;
  EXPECT_EQ(convert("auto").tensors.size(), 11u);
  EXPECT_EQ(plain_tensor_name("model.language_model.layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(plain_tensor_name("language_model.model.layers.0.x"), "model.layers.0.x");
  EXPECT_EQ(plain_tensor_name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(plain_tensor_name("norm.weight"), "model.norm.weight");
}

TEST_F(ConvertCheckpointTest, UnknownMissingAndMisshapenTensorsAreNamed) {
  const CheckpointBuilder good = builder_;
  builder_.add_layer("self_attn.surprise.weight", {4, 4});
  Thrown e = failure();
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, HasSubstr("model.layers.0.self_attn.surprise.weight"));

  builder_ = good;
  builder_.add("model.layers.1.input_layernorm.weight", {32});  // a layer too many
  EXPECT_THAT(failure().message, HasSubstr("model.layers.1.input_layernorm.weight"));

  builder_ = good;
  builder_.tensors.erase("model.layers.0.mlp.up_proj.weight");
  e = failure();
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, AllOf(HasSubstr("missing"), HasSubstr("mlp.up_proj.weight")));

  builder_ = good;
  builder_.add_layer("self_attn.k_proj.weight", {32, 32});
  e = failure();
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, AllOf(HasSubstr("k_proj"), HasSubstr("[32, 32]"), HasSubstr("[16, 32]")));

  builder_ = good;
  builder_.add("layers.0.input_layernorm.weight", {32});
  EXPECT_THAT(failure().message, HasSubstr("the same tensor under two names"));

  builder_ = good;
  builder_.tensors.erase("model.embed_tokens.weight");
  EXPECT_THAT(failure().message,
              AllOf(HasSubstr("model.embed_tokens.weight"), HasSubstr("incomplete")));
  // Only the image part was downloaded.
  builder_.tensors.clear();
  builder_.add("model.visual.patch_embed.proj.weight", {4, 4});
  EXPECT_THAT(failure().message,
              AllOf(HasSubstr("model.visual.patch_embed.proj.weight"), HasSubstr("config.json"),
                    HasSubstr("left out"), HasSubstr("download")));
}

TEST_F(ConvertCheckpointTest, WeightsThatAreNotFiniteAreNamed) {
  for (const float bad : {NAN, INFINITY}) {
    auto values = builder_.layer_values("mlp.up_proj.weight");
    values[5 * 32 + 7] = bad;
    builder_.tensors["model.layers.0.mlp.up_proj.weight"].data = test::bf16_bytes(values);
    const Thrown e = failure();
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message,
                AllOf(HasSubstr("mlp.up_proj.weight"), HasSubstr("row 5"), HasSubstr("column 7")));
  }
}

TEST_F(ConvertCheckpointTest, OtherTypesWhereNothingIsLost) {
  for (const char* type : {"f32", "bf16", "f16"}) {
    EXPECT_TRUE(convert(type).lossless) << type;
    EXPECT_EQ(type_of("blk.0.attn_v.weight"), find_codec(std::string_view(type))->id);
    EXPECT_EQ(type_of("blk.0.attn_norm.weight"), TypeId::kF32);
    EXPECT_THAT(read("blk.0.attn_v.weight"),
                ElementsAreArray(builder_.layer_values("self_attn.v_proj.weight")));
  }
}

TEST_F(ConvertCheckpointTest, RoundingHappensOnlyWhenAllowed) {
  ConvertOptions options;
  options.type = "q8_0";
  const Thrown e = failure(options);
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message,
              AllOf(HasSubstr("token_embd.weight"), HasSubstr("row "), HasSubstr("--lossy")));
  const ConvertReport report = convert("q8_0", true);
  EXPECT_FALSE(report.lossless);
  const auto written = read("blk.0.ffn_up.weight");
  const auto original = builder_.layer_values("mlp.up_proj.weight");
  for (size_t i = 0; i < written.size(); ++i)
    EXPECT_NEAR(written[i], original[i], 2.0 / 127) << i;
  for (const ConvertedTensor& tensor : report.tensors)
    EXPECT_EQ(tensor.lossless, tensor.type == "f32") << tensor.name;
}

TEST_F(ConvertCheckpointTest, ValuesBeyondF16AreRefusedEvenWhenLossy) {
  auto values = builder_.layer_values("mlp.up_proj.weight");
  values[3] = 1e6F;
  builder_.tensors["model.layers.0.mlp.up_proj.weight"].data = test::bf16_bytes(values);
  ConvertOptions options;
  options.type = "f16";
  options.lossy = true;
  const Thrown e = failure(options);
  EXPECT_THAT(e.message, AllOf(HasSubstr("blk.0.ffn_up.weight"), HasSubstr("f16")));
}

TEST_F(ConvertCheckpointTest, ATypeThatFitsNoWidthIsRefused) {
  EXPECT_THAT(convert("q8_0", true).notes, IsEmpty());
  std::filesystem::remove(output());
  ConvertOptions options;
  options.type = "q4_k";
  options.lossy = true;
  const Thrown e = failure(options);  // no width here is a multiple of 256
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("q4_k"), HasSubstr("32"), HasSubstr("256")));
}

TEST_F(ConvertCheckpointTest, NonTernaryWeightsNeverBecomeTernary) {
  ConvertOptions options;
  options.type = "q2_0";  // groups of 64: only ffn_down has rows that long
  const Thrown e = failure(options);
  EXPECT_EQ(e.code, ErrorCode::kUnsupported);
  EXPECT_THAT(e.message, AllOf(HasSubstr("blk.0.ffn_down.weight"), HasSubstr("quantize")));
}

TEST_F(ConvertCheckpointTest, TernaryWeightsBecomeTernaryExactly) {
  std::vector<float> ternary;
  for (int i = 0; i < 64 * 32; ++i)
    ternary.push_back(static_cast<float>(i * 5 % 3 - 1) * (i / 64 % 2 == 0 ? 0.5F : 1.25F));
  builder_.tensors["model.layers.0.mlp.down_proj.weight"].data = test::bf16_bytes(ternary);
  const ConvertReport report = convert("q2_0");
  EXPECT_TRUE(report.lossless);
  EXPECT_EQ(type_of("blk.0.ffn_down.weight"), TypeId::kQ2_0);
  EXPECT_THAT(read("blk.0.ffn_down.weight"), ElementsAreArray(ternary));
  ASSERT_EQ(report.notes.size(), 1u);  // the narrower matrices
  EXPECT_THAT(report.notes[0], AllOf(HasSubstr("rows of 32 values"), HasSubstr("64")));
}

TEST_F(ConvertCheckpointTest, PackedBitnetDigitsStayTernary) {
  std::string packed;
  std::vector<float> expected(64 * 32);
  for (size_t i = 0; i < 8 * 64; ++i) {
    int byte = 0;
    for (size_t s = 0; s < 4; ++s) {
      const int digit = static_cast<int>((i * (s + 2) + i / 7) % 3) - 1;
      byte |= (digit + 1) << (2 * s);
      expected[s * 8 * 64 + i] = static_cast<float>(digit) * 1.5546875F;
    }
    packed += static_cast<char>(byte);
  }
  builder_.config["quantization_config"] = {{"quant_method", "bitnet"},
                                            {"linear_class", "autobitlinear"}};
  builder_.tensors["model.layers.0.mlp.down_proj.weight"] = {"U8", {8, 64}, packed};
  builder_.tensors["model.layers.0.mlp.down_proj.weight_scale"] = {
      "BF16", {1}, test::bf16_bytes({1.5546875F})};
  const ConvertReport report = convert("q2_0");
  EXPECT_TRUE(report.lossless);
  EXPECT_EQ(type_of("blk.0.ffn_down.weight"), TypeId::kQ2_0);
  EXPECT_EQ(file_->find("blk.0.ffn_down.weight")->shape, (Shape{64, 32}));
  EXPECT_THAT(read("blk.0.ffn_down.weight"), ElementsAreArray(expected));
  convert("f32");
  EXPECT_THAT(read("blk.0.ffn_down.weight"), ElementsAreArray(expected));
  // A scale of a weight that is not packed belongs to nothing.
  builder_.tensors["model.layers.0.input_layernorm.weight_scale"] = {
      "BF16", {1}, test::bf16_bytes({1})};
  ConvertOptions options;
  options.overwrite = true;
  const Thrown e = test::catch_error([&] { convert(options); });
  EXPECT_THAT(e.message, HasSubstr("input_layernorm.weight_scale"));
}

TEST_F(ConvertCheckpointTest, Fp8WeightsKeepTheirValues) {
  // Sign, four bits of exponent (bias 7), three of mantissa; no code here is a NaN.
  const std::vector<float> scales = {1, 2, 0.5, 0.25, 1, 4, 0.0625, 3};
  std::string bytes;
  std::vector<float> expected;
  for (int i = 0; i < 64 * 32; ++i) {
    const int code = i * 37 % 0x7F;
    const int exponent = code >> 3, mantissa = code & 7;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(mantissa), -9)
                                : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    const bool negative = i % 3 == 0;
    bytes += static_cast<char>(code | (negative ? 0x80 : 0));
    const float scale = scales[static_cast<size_t>(i / (64 * 16) * 4 + i % 64 / 16)];
    expected.push_back((negative ? -magnitude : magnitude) * scale);
  }
  builder_.config["quantization_config"] = {{"quant_method", "fp8"},
                                            {"weight_block_size", {16, 16}}};
  builder_.tensors["model.layers.0.mlp.down_proj.weight"] = {"F8_E4M3", {32, 64}, bytes};
  builder_.tensors["model.layers.0.mlp.down_proj.weight_scale_inv"] = {
      "F32", {2, 4}, test::f32_bytes(scales)};
  const ConvertReport report = convert();
  EXPECT_TRUE(report.lossless);
  EXPECT_EQ(type_of("blk.0.ffn_down.weight"), TypeId::kBF16);  // holds all of these exactly
  EXPECT_THAT(read("blk.0.ffn_down.weight"), ElementsAreArray(expected));
}

TEST_F(ConvertCheckpointTest, SamplingAdviceIsCarried) {
  builder_.write(dir_ / "model");
  test::write_file(dir_ / "model" / "generation_config.json",
                   R"({"temperature":0.6,"top_k":20,"top_p":0.95,"do_sample":true})");
  convert();
  const auto file = GgufFile::open(output());
  EXPECT_FLOAT_EQ(static_cast<float>(*file->metadata().get_float("general.sampling.temp")), 0.6F);
  EXPECT_EQ(file->metadata().get_int("general.sampling.top_k", 0, 99), 20);
  EXPECT_FALSE(file->metadata().contains("general.sampling.min_p"));
  std::filesystem::remove(output());
  test::write_file(dir_ / "model" / "generation_config.json", R"({"top_k":"many"})");
  EXPECT_THAT(failure().message, AllOf(HasSubstr("generation_config.json"), HasSubstr("top_k")));
}

TEST_F(ConvertCheckpointTest, TheOutputIsNotOverwrittenUnlessTold) {
  test::write_file(output(), "precious");
  const Thrown e = test::catch_error([&] { convert(); });
  EXPECT_EQ(e.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(test::read_file(output()), "precious");
  convert("auto");
  EXPECT_EQ(test::read_file(output()).substr(0, 4), "GGUF");
}

TEST_F(ConvertCheckpointTest, SettingsThatPromiseBiasesNeedThem) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    builder_.config[key] = true;
    Thrown e = failure();
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json"), HasSubstr(key), HasSubstr("no bias")));
    builder_.config[key] = "yes";
    e = failure();
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json"), HasSubstr(key), HasSubstr("yes")));
    builder_.config[key] = false;
  }
  convert();
  builder_.add_layer("self_attn.q_proj.bias", {32});
  std::filesystem::remove(output());
  EXPECT_THAT(failure().message, AllOf(HasSubstr("attention_bias"), HasSubstr("a bias")));
  builder_.add_layer("self_attn.k_proj.bias", {16});
  builder_.add_layer("self_attn.v_proj.bias", {16});
  builder_.config["attention_bias"] = true;
  EXPECT_THAT(failure().message, HasSubstr("attn_output.weight"));
  builder_.add_layer("self_attn.o_proj.bias", {32});
  EXPECT_EQ(convert().tensors.size(), 15u);
}

/// Checkpoints whose tokenizer files are edited after writing.
class ConvertTokenizerTest : public ConvertCheckpointTest {
 protected:
  std::filesystem::path file(const char* name) const { return dir_ / "model" / name; }
  nlohmann::json read_json(const char* name) {
    builder_.write(dir_ / "model");
    return nlohmann::json::parse(test::read_file(file(name)));
  }
  ConvertReport convert_as_is() {
    return convert_model(dir_ / "model", output(), ConvertOptions{}, Progress{});
  }
  Thrown failure_as_is() {
    const Thrown e = test::catch_error([&] { convert_as_is(); });
    EXPECT_FALSE(std::filesystem::exists(output()));
    return e;
  }
};

TEST_F(ConvertTokenizerTest, ChatTemplatesThatCannotBeUsedAreRefused) {
  for (const std::string& source : {std::string("{% if %}"), std::string("{{ 'a' "),
                                    std::string("a\xFF"
                                                "b"),
                                    std::string((size_t{1} << 20) + 1, 'x')}) {
    builder_.write(dir_ / "model");
    test::write_file(file("chat_template.jinja"), source);
    const Thrown e = failure_as_is();
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message, AllOf(HasSubstr("model"), HasSubstr("chat_template")));
  }
  // A further one is not needed to run the model.
  test::write_file(file("chat_template.jinja"), "{{ messages[0].content }}");
  std::filesystem::create_directory(file("additional_chat_templates"));
  test::write_file(file("additional_chat_templates") / "rag.jinja", "{% if %}");
  test::write_file(file("additional_chat_templates") / "tools.jinja", "{{ 1 }}");
  EXPECT_THAT(convert_as_is().notes, Contains(HasSubstr("'rag'")));
  const auto gguf = GgufFile::open(output());
  EXPECT_FALSE(gguf->metadata().contains("tokenizer.chat_template.rag"));
  EXPECT_TRUE(gguf->metadata().contains("tokenizer.chat_template.tools"));
}

TEST_F(ConvertTokenizerTest, TokenizersThatCannotBeUsedAreRefused) {
  nlohmann::json whole = read_json("tokenizer.json");
  nlohmann::json j = whole;
  j["model"].erase("merges");
  test::write_file(file("tokenizer.json"), j.dump());
  EXPECT_THAT(failure_as_is().message, AllOf(HasSubstr("tokenizer.json"), HasSubstr("merges")));
  j = whole;
  j["model"]["vocab"] = nlohmann::json::object();
  test::write_file(file("tokenizer.json"), j.dump());
  EXPECT_THAT(failure_as_is().message, AllOf(HasSubstr("tokenizer.json"), HasSubstr("empty")));
  // A byte without a token is lost in text, as it is with the checkpoint's own tokenizer.
  j = whole;
  j["model"]["vocab"].erase("q");
  nlohmann::json merges = nlohmann::json::array();
  for (const auto& merge : whole["model"]["merges"]) {
    if (merge.dump().find('q') == std::string::npos) merges.push_back(merge);
  }
  j["model"]["merges"] = merges;
  test::write_file(file("tokenizer.json"), j.dump());
  EXPECT_THAT(convert_as_is().notes, Contains(AllOf(HasSubstr("no token"), HasSubstr("0x71"))));
}

TEST_F(ConvertTokenizerTest, SpecialIdsOfTheConfigurationAreChecked) {
  for (const nlohmann::json& value : {nlohmann::json("a"), nlohmann::json(999)}) {
    builder_.config["eos_token_id"] = value;
    EXPECT_THAT(failure().message, AllOf(HasSubstr("config.json"), HasSubstr("eos_token_id")));
  }
}

TEST_F(ConvertCheckpointTest, WrongInputsAreExplained) {
  const auto message = [&](const std::filesystem::path& in, const std::filesystem::path& out) {
    return test::catch_error([&] { convert_model(in, out, {}, Progress{}); });
  };
  EXPECT_EQ(message(dir_ / "gone", output()).code, ErrorCode::kIo);
  EXPECT_EQ(message(dir_.path(), output()).code, ErrorCode::kFormat);
  EXPECT_EQ(message(dir_.path(), dir_ / "out.bin").code, ErrorCode::kUnsupported);
  test::write_file(dir_ / "x.safetensors", "");
  EXPECT_THAT(message(dir_ / "x.safetensors", output()).message, HasSubstr("directory"));
  ConvertOptions options;
  options.type = "q9_9";
  const Thrown e = test::catch_error([&] { convert(options); });
  EXPECT_EQ(e.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(e.message, AllOf(HasSubstr("q9_9"), HasSubstr("pq2_0")));
  for (const char* type : {"i32", "f64", "iq1_s", ""}) {
    options.type = type;
    EXPECT_EQ(test::catch_error([&] { convert(options); }).code, ErrorCode::kInvalidArgument)
        << type;
  }
}

}  // namespace
}  // namespace ts
