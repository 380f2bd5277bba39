#include "convert/hf_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/hf_family.h"
#include "support/error_matchers.h"

namespace ts {
namespace {

using test::catch_error;
using ::testing::AllOf;
using ::testing::HasSubstr;

HfConfig parse(const std::string& text) {
  return HfConfig::parse(text, "config.json");
}

TEST(HfConfigTest, TheTextPartWins) {
  const HfConfig c =
      parse(R"({"architectures":["Gemma3ForConditionalGeneration"],"hidden_size":1,"only_root":2,)"
            R"("text_config":{"hidden_size":640,"rope_scaling":null}})");
  EXPECT_EQ(c.model_class(), "Gemma3ForConditionalGeneration");
  EXPECT_EQ(c.require_int("hidden_size", 1, 1000), 640);
  EXPECT_EQ(c.require_int("only_root", 1, 1000), 2);
  EXPECT_EQ(c.find("rope_scaling"), nullptr);
  EXPECT_TRUE(c.is_null("rope_scaling"));
  EXPECT_FALSE(c.is_null("absent"));
  EXPECT_EQ(parse(R"({"architectures":["A"],"text_config":{"architectures":["B"]}})").model_class(),
            "B");
}

TEST(HfConfigTest, WrongSettingsAreNamed) {
  const HfConfig c =
      parse(R"({"architectures":["X"],"a":1.5,"b":"7","c":99,"d":18446744073709551615,"e":1})");
  for (const char* key : {"a", "b", "c", "d"}) {
    const auto e = catch_error([&] { c.get_int(key, 0, 10); });
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json: "), HasSubstr(key),
                                 HasSubstr("integer from 0 to 10")));
  }
  EXPECT_EQ(catch_error([&] { c.get_bool("e"); }).code, ErrorCode::kFormat);
  EXPECT_EQ(catch_error([&] { c.get_string("e"); }).code, ErrorCode::kFormat);
  EXPECT_EQ(catch_error([&] { c.get_number("b"); }).code, ErrorCode::kFormat);
  EXPECT_THAT(catch_error([&] { c.require_int("gone", 0, 1); }).message, HasSubstr("missing"));
}

TEST(HfConfigTest, SettingsOfAnImageEncoderAreCalledThat) {
  const std::pair<const char*, const char*> configs[] = {
      {R"({"architectures":["SiglipVisionModel"],"hidden_size":8,"patch_size":14})", "patch_size"},
      {R"({"model_type":"qwen3_5","vision_config":{"depth":2}})", "vision_config"},
      {R"({"architectures":["Qwen3_5ForConditionalGeneration"],"vision_config":{"depth":2}})",
       "vision_config"}};
  for (const auto& config : configs) {
    const auto e = catch_error([&] { parse(config.first); });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json: "), HasSubstr(config.second),
                                 HasSubstr("image encoder"), HasSubstr("whole model")));
  }
}

TEST(HfConfigTest, DamagedTextIsRefused) {
  for (const char* text :
       {"", "{", "[]", "7", "{}", R"({"architectures":[]})", R"({"architectures":"Llama"})",
        R"({"architectures":[3]})", R"({"architectures":["X"],"text_config":4})",
        "version https://git-lfs.github.com/spec/v1"}) {
    EXPECT_EQ(catch_error([&] { parse(text); }).code, ErrorCode::kFormat) << text;
  }
  const std::string deep(100000, '[');
  EXPECT_EQ(catch_error([&] { parse(R"({"architectures":)" + deep); }).code, ErrorCode::kFormat);
}

/// Settings of a llama with `changes` applied.
HfConfig llama(const nlohmann::json& changes) {
  nlohmann::json settings = {{"architectures", {"LlamaForCausalLM"}},
                             {"hidden_size", 64},
                             {"intermediate_size", 96},
                             {"num_attention_heads", 8},
                             {"num_hidden_layers", 2},
                             {"num_key_value_heads", 4}};
  if (!changes.is_null()) settings.merge_patch(changes);  // a null inside removes the key
  return parse(settings.dump());
}

HfConfig with_class(const char* name, nlohmann::json changes = nlohmann::json::object()) {
  changes["architectures"] = {name};
  return llama(changes);
}

TEST(HfFamilyTest, SizesAndDefaults) {
  const HfSizes s = read_hf_sizes(llama({}), kLlamaFamily);
  EXPECT_EQ(s.head_dim, 8);
  EXPECT_EQ(s.n_kv_heads, 4);
  EXPECT_EQ(s.context, 2048);
  EXPECT_EQ(read_hf_sizes(llama({{"num_key_value_heads", nullptr}}), kLlamaFamily).n_kv_heads, 8);
  EXPECT_EQ(read_hf_sizes(llama({{"head_dim", 24}}), kLlamaFamily).head_dim, 24);
  // Class defaults that configurations leave out.
  const auto qwen = with_class("Qwen3ForCausalLM",
                               {{"num_attention_heads", 32}, {"num_key_value_heads", nullptr}});
  EXPECT_EQ(read_hf_sizes(qwen, kQwen3Family).head_dim, 128);
  EXPECT_EQ(read_hf_sizes(qwen, kQwen3Family).n_kv_heads, 32);
  EXPECT_EQ(read_hf_sizes(qwen, kQwen2Family).context, 32768);
  const auto gemma = with_class(
      "Gemma3ForCausalLM", {{"num_attention_heads", nullptr}, {"num_key_value_heads", nullptr}});
  const HfSizes g = read_hf_sizes(gemma, kGemma3Family);
  EXPECT_EQ(g.n_heads, 8);
  EXPECT_EQ(g.n_kv_heads, 4);
  EXPECT_EQ(g.head_dim, 256);
  EXPECT_EQ(g.context, 131072);
  EXPECT_TRUE(is_tied(gemma, kGemma3Family));
  EXPECT_FALSE(is_tied(llama({}), kLlamaFamily));
}

TEST(HfFamilyTest, AnExplicitNullOfKeyValueHeadsMeansAllHeads) {
  const auto c =
      parse(R"({"architectures":["Gemma3ForCausalLM"],"hidden_size":64,"intermediate_size":96,)"
            R"("num_attention_heads":8,"num_hidden_layers":2,"num_key_value_heads":null})");
  EXPECT_EQ(read_hf_sizes(c, kGemma3Family).n_kv_heads, 8);
}

TEST(HfFamilyTest, SizesThatContradictAreRefused) {
  const std::pair<nlohmann::json, const char*> cases[] = {
      {{{"num_hidden_layers", 0}}, "num_hidden_layers"},
      {{{"num_hidden_layers", 1000000000}}, "num_hidden_layers"},
      {{{"hidden_size", nullptr}}, "hidden_size"},
      {{{"num_key_value_heads", 3}}, "num_key_value_heads"},
      {{{"num_attention_heads", 12}}, "num_attention_heads"},
      {{{"head_dim", 7}}, "head_dim"},
      {{{"hidden_size", -64}}, "hidden_size"},
  };
  for (const auto& [changes, key] : cases) {
    const auto e = catch_error([&] { read_hf_sizes(llama(changes), kLlamaFamily); });
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message, HasSubstr(key));
  }
}

TEST(HfFamilyTest, UnknownClassesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"SmolLM3ForCausalLM", "Phi3ForCausalLM", "MixtralForCausalLM"}) {
    const auto e = catch_error([&] { require_family(with_class(name)); });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported);
    EXPECT_THAT(e.message, AllOf(HasSubstr(name), HasSubstr("LlamaForCausalLM")));
  }
  EXPECT_EQ(require_family(with_class("MistralForCausalLM")).architecture, "llama");
  EXPECT_EQ(require_family(with_class("Gemma3ForConditionalGeneration")).architecture, "gemma3");
}

Metadata metadata_of(const HfConfig& config) {
  const HfFamily& family = require_family(config);
  Metadata metadata;
  std::vector<std::string> notes;
  write_hf_metadata(config, family, read_hf_sizes(config, family), metadata, notes);
  return metadata;
}

TEST(HfFamilyTest, SettingsThatCannotBeExpressedAreRefused) {
  const auto refused = [](const HfConfig& config, const char* key) {
    const auto e = catch_error([&] { metadata_of(config); });
    EXPECT_EQ(e.code, ErrorCode::kUnsupported) << key;
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json: "), HasSubstr(key)));
  };
  refused(llama({{"num_local_experts", 8}}), "num_local_experts");
  refused(llama({{"hidden_act", "gelu"}}), "hidden_act");
  refused(llama({{"sliding_window", 1024}}), "sliding_window");
  refused(with_class("Qwen2ForCausalLM", {{"use_sliding_window", true}}), "use_sliding_window");
  refused(
      with_class("Qwen3ForCausalLM", {{"layer_types", {"full_attention", "sliding_attention"}}}),
      "layer_types");
  const nlohmann::json gemma = {{"head_dim", 256}};
  const auto gemma_with = [&](const char* key, nlohmann::json value) {
    nlohmann::json changes = gemma;
    changes[key] = std::move(value);
    return with_class("Gemma3ForCausalLM", changes);
  };
  refused(gemma_with("attn_logit_softcapping", 50.0), "attn_logit_softcapping");
  refused(gemma_with("query_pre_attn_scalar", 168), "query_pre_attn_scalar");
  refused(gemma_with("hidden_activation", "gelu"), "hidden_activation");
  refused(gemma_with("use_bidirectional_attention", true), "use_bidirectional_attention");
  refused(with_class("Gemma3ForCausalLM", {{"num_hidden_layers", 4},
                                           {"head_dim", 256},
                                           {"layer_types",
                                            {"full_attention", "sliding_attention",
                                             "sliding_attention", "full_attention"}}}),
          "layer_types");
}

TEST(HfFamilyTest, WindowsThatDoNotCountAreNoObstacle) {
  EXPECT_EQ(metadata_of(llama({{"sliding_window", 4096}, {"max_position_embeddings", 4096}}))
                .get_int("llama.context_length", 0, 1 << 20),
            4096);
  const Metadata qwen = metadata_of(
      with_class("Qwen2ForCausalLM", {{"use_sliding_window", false}, {"sliding_window", 16}}));
  EXPECT_FALSE(qwen.contains("qwen2.attention.sliding_window"));
}

TEST(HfFamilyTest, Gemma3Windows) {
  const auto gemma = [](nlohmann::json changes) {
    changes["num_hidden_layers"] = 7;
    changes["head_dim"] = 256;
    return metadata_of(with_class("Gemma3ForCausalLM", changes));
  };
  const Metadata usual = gemma({{"sliding_window", 512}, {"rope_local_base_freq", 20000}});
  EXPECT_EQ(usual.get_int("gemma3.attention.sliding_window", 0, 9999), 512);
  EXPECT_FALSE(usual.contains("gemma3.attention.sliding_window_pattern"));
  EXPECT_DOUBLE_EQ(*usual.get_float("gemma3.rope.freq_base_swa"), 20000.0);
  EXPECT_DOUBLE_EQ(*usual.get_float("gemma3.rope.freq_base"), 1e6);
  const Metadata three = gemma({{"sliding_window_pattern", 3}});
  EXPECT_EQ(three.get_int("gemma3.attention.sliding_window_pattern", 0, 99), 3);
  const Metadata all_global = gemma({{"sliding_window_pattern", 1}, {"sliding_window", 512}});
  EXPECT_FALSE(all_global.contains("gemma3.attention.sliding_window"));
  const Metadata capped = gemma({{"final_logit_softcapping", 30.0}});
  EXPECT_DOUBLE_EQ(*capped.get_float("gemma3.final_logit_softcapping"), 30.0);
}

}  // namespace
}  // namespace ts
