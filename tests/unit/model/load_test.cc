// What loading refuses, and that every refusal names its cause.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "base/log.h"
#include "format/gguf.h"
#include "model/model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

using test::TinyModel;
using test::TinyTensor;

struct Outcome {
  std::string kind = "ok";
  std::string message;
};

class Load : public testing::Test {
 protected:
  static TinyModel small(const std::string& architecture = "llama") {
    TinyModel m;
    m.architecture = architecture;
    m.n_layers = 1;
    m.d_model = 64;
    m.d_ff = 64;
    m.n_heads = 2;
    m.n_kv_heads = 1;
    m.head_dim = 32;
    return m;
  }
  /// Outcome of checking the file, which must be the same with and without a backend.
  Outcome load(const TinyModel& model) {
    const auto path = directory_.path() / "m.gguf";
    test::write_tiny_model(model, path);
    const Outcome checked = attempt(path, nullptr);
    CpuBackendOptions options;
    options.n_threads = 1;
    const Outcome loaded = attempt(path, make_cpu_backend(options).get());
    EXPECT_EQ(checked.kind, loaded.kind);
    EXPECT_EQ(checked.message, loaded.message);
    return loaded;
  }
  static Outcome attempt(const std::filesystem::path& path, Backend* backend) {
    try {
      load_model(GgufFile::open(path), backend);
    } catch (const Error& error) {
      return {std::string(error.kind().name), error.what()};
    }
    return {};
  }
  void expect(const TinyModel& model, const std::string& kind,
              const std::vector<std::string>& words) {
    const Outcome outcome = load(model);
    EXPECT_EQ(outcome.kind, kind) << outcome.message;
    for (const std::string& word : words)
      EXPECT_NE(outcome.message.find(word), std::string::npos)
          << word << " not in: " << outcome.message;
    EXPECT_LE(std::count(outcome.message.begin(), outcome.message.end(), '\n'), 2);
  }
  void expect_metadata(std::function<void(Metadata&)> edit, const std::string& kind,
                       const std::vector<std::string>& words) {
    TinyModel m = small();
    m.edit_metadata = std::move(edit);
    expect(m, kind, words);
  }
  void expect_tensors(std::function<void(std::vector<TinyTensor>&)> edit, const std::string& kind,
                      const std::vector<std::string>& words,
                      const std::string& architecture = "llama") {
    TinyModel m = small(architecture);
    m.edit_tensors = std::move(edit);
    expect(m, kind, words);
  }
  test::TempDir directory_;
};

TinyTensor& find(std::vector<TinyTensor>& tensors, const std::string& name) {
  for (TinyTensor& t : tensors) {
    if (t.name == name) return t;
  }
  throw std::logic_error("no tensor " + name);
}

TEST_F(Load, AllFamiliesLoad) {
  for (const char* name : {"llama", "qwen2", "qwen3", "gemma3", "qwen35"})
    EXPECT_EQ(load(small(name)).kind, "ok");
}

TEST_F(Load, IntegersOfAnyWidthAndPerLayerArrays) {
  TinyModel m = small();
  m.n_layers = 2;
  m.edit_metadata = [](Metadata& md) {
    md.set("llama.embedding_length", MetadataValue::u64(64));
    md.set("llama.context_length", MetadataValue::i32(512));
    md.set("llama.attention.head_count", MetadataValue::i32_array({2, 2}));
    md.set("llama.attention.head_count_kv", MetadataValue::i32_array({1, 2}));
    md.set("llama.feed_forward_length", MetadataValue::i32_array({64, 64}));
  };
  m.edit_tensors = [](std::vector<TinyTensor>& tensors) {
    for (const char* name : {"blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
      TinyTensor& t = find(tensors, name);
      t.shape = Shape{64, 64};
      t.values.resize(64 * 64, 0.01F);
    }
  };
  EXPECT_EQ(load(m).message, "");
}

TEST_F(Load, MissingKeysAreNamed) {
  for (const std::string key :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"})
    expect_metadata([&](Metadata& md) { md.erase("llama." + key); }, "format_error",
                    {"m.gguf", "llama." + key, "missing"});
  expect_metadata([](Metadata& md) { md.erase("general.architecture"); }, "format_error",
                  {"general.architecture"});
}

TEST_F(Load, ValuesOutOfRangeAreNamed) {
  const auto set = [](const std::string& key, MetadataValue value) {
    return [=](Metadata& md) { md.set("llama." + key, value); };
  };
  for (const auto& [key, value] : std::vector<std::pair<std::string, MetadataValue>>{
           {"block_count", MetadataValue::u32(0)},
           {"block_count", MetadataValue::u64(UINT64_MAX)},
           {"block_count", MetadataValue::i32(-1)},
           {"block_count", MetadataValue::string("many")},
           {"block_count", MetadataValue::f32(1.0F)},
           {"embedding_length", MetadataValue::u32(0)},
           {"embedding_length", MetadataValue::u64(uint64_t{1} << 60)},
           {"context_length", MetadataValue::u32(0)},
           {"attention.head_count", MetadataValue::u32(0)},
           {"attention.head_count_kv", MetadataValue::u32(0)},
           {"attention.head_count_kv", MetadataValue::u32(3)},
           {"attention.head_count", MetadataValue::i32_array({2, 2})},
           {"feed_forward_length", MetadataValue::i32_array({})},
           {"attention.key_length", MetadataValue::u32(31)},
           {"attention.layer_norm_rms_epsilon", MetadataValue::f32(0)},
           {"attention.layer_norm_rms_epsilon", MetadataValue::f32(NAN)}})
    expect_metadata(set(key, value), "format_error", {"m.gguf", "llama." + key});
  expect_metadata(set("attention.value_length", MetadataValue::u32(16)), "unsupported",
                  {"attention.value_length"});
  expect_metadata(set("rope.dimension_count", MetadataValue::u32(16)), "unsupported",
                  {"rope.dimension_count", "16"});
  expect_metadata(set("expert_count", MetadataValue::u32(8)), "unsupported", {"expert_count", "8"});
}

// What would change the result and is not computed is refused; what changes nothing is not.
TEST_F(Load, SettingsThatAreNotComputedAreRefused) {
  struct Case {
    const char* suffix;
    std::vector<MetadataValue> refused, neutral;
  };
  using V = MetadataValue;
  const std::vector<Case> everywhere = {
      {"logit_scale", {V::f32(0.5F), V::f32(16)}, {V::f32(0), V::f32(1), V::u32(1)}},
      {"residual_scale", {V::f32(0.22F)}, {V::f32(0), V::f32(1)}},
      {"embedding_scale", {V::f32(12)}, {V::f32(0)}},
      {"attention.output_scale", {V::f32(2)}, {V::f32(1)}},
      {"attention.causal", {V::boolean(false)}, {V::boolean(true)}},
      {"use_parallel_residual", {V::boolean(true)}, {V::boolean(false)}},
      {"attn_logit_softcapping", {V::f32(50)}, {V::f32(0)}},
      {"router_logit_softcapping", {V::f32(30)}, {V::f32(0)}},
      {"attention.max_alibi_bias", {V::f32(8)}, {V::f32(0)}},
      {"attention.clamp_kqv", {V::f32(8)}, {V::f32(0)}},
      {"attention.temperature_scale", {V::f32(0.1F)}, {V::f32(0)}},
      {"attention.kv_lora_rank", {V::u32(512)}, {V::u32(0)}},
      {"attention.key_length_swa", {V::u32(16)}, {V::u32(32)}},
      {"attention.shared_kv_layers", {V::u32(1)}, {V::u32(0)}},
      {"expert_used_count", {V::u32(2)}, {V::u32(0)}},
      {"expert_shared_count", {V::u32(1)}, {V::u32(0)}},
      {"rescale_every_n_layers", {V::u32(6)}, {V::u32(0)}},
      {"rope.scaling.attn_factor", {V::f32(1.19F)}, {V::f32(1), V::f32(0)}},
      {"rope.scaling.yarn_ext_factor", {V::f32(1)}, {V::f32(-1), V::f32(0)}},
      {"rope.scaling.yarn_log_multiplier", {V::f32(0.1F)}, {V::f32(0)}},
      {"vocab_size", {V::u32(301), V::u32(0)}, {V::u32(300)}},
  };
  const auto outcome = [&](const std::string& architecture, const std::string& suffix,
                           const MetadataValue& value) {
    TinyModel m = small(architecture);
    m.edit_metadata = [&](Metadata& md) { md.set(architecture + "." + suffix, value); };
    return load(m);
  };
  const auto check = [&](const std::string& architecture, const Case& c) {
    for (const MetadataValue& value : c.refused) {
      const Outcome o = outcome(architecture, c.suffix, value);
      EXPECT_EQ(o.kind, std::string(c.suffix) == "vocab_size" ? "format_error" : "unsupported")
          << c.suffix;
      EXPECT_NE(o.message.find(architecture + "." + c.suffix), std::string::npos) << o.message;
    }
    for (const MetadataValue& value : c.neutral)
      EXPECT_EQ(outcome(architecture, c.suffix, value).message, "") << architecture;
  };
  for (const char* architecture : {"llama", "qwen2", "qwen3", "gemma3", "qwen35"}) {
    for (const Case& c : everywhere)
      check(architecture, c);
    if (std::string(architecture) == "gemma3") {
      check(architecture, {"embedding_scale", {V::f32(1)}, {V::f32(8)}});  // sqrt(64)
      EXPECT_EQ(outcome(architecture, "attention.sliding_window", V::u32(16)).message, "");
      EXPECT_EQ(outcome(architecture, "final_logit_softcapping", V::f32(30)).message, "");
      continue;
    }
    check(architecture, {"embedding_scale", {V::f32(0.5F)}, {V::f32(1)}});
    // Windows at least as long as the context of 512 hide nothing.
    check(architecture, {"attention.sliding_window",
                         {V::u32(511), V::u32(1)},
                         {V::u32(0), V::u32(512), V::u32(UINT32_MAX)}});
    check(architecture, {"final_logit_softcapping", {V::f32(30)}, {V::f32(0)}});
  }
  expect_metadata([](Metadata& md) { md.set("llama.logit_scale", V::string("x")); }, "format_error",
                  {"m.gguf", "llama.logit_scale"});
}

TEST_F(Load, VocabularyOfAnotherLength) {
  expect_metadata(
      [](Metadata& md) {
        auto tokens = *md.get_strings("tokenizer.ggml.tokens");
        tokens.pop_back();
        md.set("tokenizer.ggml.tokens", MetadataValue::strings(tokens));
      },
      "format_error", {"299", "300", "token_embd.weight"});
}

TEST_F(Load, OtherKindsOfFiles) {
  for (const std::string name : {"bitnet-b1.58", "mamba", "clip", "qwen35moe", "lla\x01ma"}) {
    TinyModel m = small();
    m.edit_metadata = [&](Metadata& md) {
      md.set("general.architecture", MetadataValue::string(name));
    };
    expect(m, "unsupported", {name == "lla\x01ma" ? "lla\\x01ma" : name});
  }
  for (const std::string type : {"adapter", "mmproj", "residual"})
    expect_metadata([&](Metadata& md) { md.set("general.type", MetadataValue::string(type)); },
                    "unsupported", {"general.type", type});
  expect_metadata(
      [](Metadata& md) { md.set("tensorsharp.requires", MetadataValue::string("time_travel")); },
      "unsupported", {"time_travel"});
}

TEST_F(Load, MissingTensorsAreNamed) {
  for (const std::string name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.ffn_down.weight"})
    expect_tensors(
        [&](std::vector<TinyTensor>& t) {
          std::erase_if(t, [&](const TinyTensor& x) { return x.name == name; });
        },
        "format_error", {"m.gguf", name, "missing"});
  expect_tensors(
      [](std::vector<TinyTensor>& t) {
        std::erase_if(t, [](const TinyTensor& x) { return x.name == "blk.0.attn_k.bias"; });
      },
      "format_error", {"blk.0.attn_k.bias"}, "qwen2");
  expect_tensors(
      [](std::vector<TinyTensor>& t) {
        std::erase_if(t, [](const TinyTensor& x) { return x.name == "blk.0.attn_q_norm.weight"; });
      },
      "format_error", {"blk.0.attn_q_norm.weight"}, "qwen3");
}

TEST_F(Load, MisshapenTensorsAreNamed) {
  expect_tensors(
      [](std::vector<TinyTensor>& t) {
        TinyTensor& q = find(t, "blk.0.attn_q.weight");
        q.shape = Shape{64, 32};
        q.values.resize(64 * 32);
      },
      "format_error", {"blk.0.attn_q.weight", "{64, 32}", "{64, 64}"});
  expect_tensors(
      [](std::vector<TinyTensor>& t) {
        TinyTensor& n = find(t, "blk.0.ffn_norm.weight");
        n.shape = Shape{32};
        n.values.resize(32);
      },
      "format_error", {"blk.0.ffn_norm.weight", "{32}", "{64}"});
}

TEST_F(Load, UnknownExtraTensorsAreRefusedAndOldFrequencyTablesSkipped) {
  const auto extra = [](const std::string& name) {
    return [name](std::vector<TinyTensor>& t) {
      t.push_back({name, TypeId::kF32, Shape{32}, std::vector<float>(32, 1.0F)});
    };
  };
  expect_tensors(extra("blk.0.attn_q_norm.weight"), "unsupported",
                 {"blk.0.attn_q_norm.weight", "llama"});
  expect_tensors(extra("blk.1.attn_norm.weight"), "unsupported", {"blk.1.attn_norm.weight"});
  expect_tensors(extra("blk.0.attn.rotary_emb.inv_freq"), "ok", {});
}

TEST_F(Load, TypesThatCannotBeUsedThere) {
  expect_tensors(
      [](std::vector<TinyTensor>& t) { find(t, "blk.0.attn_norm.weight").type = TypeId::kQ8_0; },
      "unsupported", {"blk.0.attn_norm.weight", "q8_0"});
  expect_tensors(
      [](std::vector<TinyTensor>& t) { find(t, "blk.0.attn_norm.weight").type = TypeId::kF16; },
      "ok", {});
}

TEST_F(Load, UnknownTypeIsNamedWithItsNumber) {
  const auto path = directory_.path() / "m.gguf";
  test::write_tiny_model(small(), path);
  // The type number stands after name, number of dimensions and two dimensions.
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const size_t at = bytes.find("output.weight") + std::string("output.weight").size() + 4 + 16;
  const uint32_t type = 199;
  file.seekp(static_cast<std::streamoff>(at));
  file.write(reinterpret_cast<const char*>(&type), sizeof type);
  file.close();
  const Outcome outcome = attempt(path, nullptr);
  EXPECT_EQ(outcome.kind, "unsupported");
  EXPECT_NE(outcome.message.find("output.weight"), std::string::npos) << outcome.message;
  EXPECT_NE(outcome.message.find("199"), std::string::npos) << outcome.message;
  EXPECT_EQ(outcome.message.find("overflow"), std::string::npos) << outcome.message;
}

TEST_F(Load, NonFiniteNormIsNamed) {
  TinyModel m = small();
  m.edit_tensors = [](std::vector<TinyTensor>& t) {
    find(t, "blk.0.ffn_norm.weight").values[7] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto path = directory_.path() / "m.gguf";
  test::write_tiny_model(m, path);
  CpuBackendOptions options;
  options.n_threads = 1;
  const Outcome outcome = attempt(path, make_cpu_backend(options).get());
  EXPECT_EQ(outcome.kind, "format_error");
  EXPECT_NE(outcome.message.find("blk.0.ffn_norm.weight"), std::string::npos);
  EXPECT_NE(outcome.message.find("index 7"), std::string::npos) << outcome.message;
}

TEST_F(Load, FrequencyFactorsMustBePositive) {
  TinyModel m = small();
  m.edit_tensors = [](std::vector<TinyTensor>& t) {
    t.push_back({"rope_freqs.weight", TypeId::kF32, Shape{16}, std::vector<float>(16, 0.0F)});
  };
  const auto path = directory_.path() / "m.gguf";
  test::write_tiny_model(m, path);
  CpuBackendOptions options;
  options.n_threads = 1;
  const Outcome outcome = attempt(path, make_cpu_backend(options).get());
  EXPECT_EQ(outcome.kind, "format_error");
  EXPECT_NE(outcome.message.find("m.gguf: tensor rope_freqs.weight"), std::string::npos);
}

TEST_F(Load, TernaryFileWithoutRotationKeysGivesOneWarning) {
  TinyModel m = small();
  m.d_model = m.d_ff = 128;
  m.head_dim = 64;
  m.ternary = true;
  m.matrix_type = TypeId::kPTQ1_0;
  std::vector<std::string> warnings;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  const Outcome outcome = load(m);
  set_log_sink({});
  EXPECT_EQ(outcome.kind, "ok") << outcome.message;
  // Each look at the file gives the same one.
  ASSERT_EQ(std::set<std::string>(warnings.begin(), warnings.end()).size(), 1u);
  EXPECT_NE(warnings[0].find("prism.hadamard"), std::string::npos);
}

TEST_F(Load, CountsAndLayouts) {
  const auto path = directory_.path() / "m.gguf";
  TinyModel m = small();
  test::write_tiny_model(m, path);
  const auto model = load_model(GgufFile::open(path), nullptr);
  int64_t elems = 0;
  for (const TinyTensor& t : test::tiny_tensors(m))
    elems += t.shape.n_elems();
  EXPECT_EQ(model->n_parameters(), elems);
  const uint64_t embedding = 64 * 300 * 4;
  EXPECT_EQ(model->weight_bytes() - model->weight_bytes_per_token(), embedding);
  EXPECT_EQ(model->state_layout(1000, KvType::kF16).bytes(), 1000u * 2 * 32 * 2);
  EXPECT_EQ(model->state_layout(INT64_MAX / 2, KvType::kF32).bytes(), UINT64_MAX);
  m.tied = true;
  test::write_tiny_model(m, path);
  const auto tied = load_model(GgufFile::open(path), nullptr);
  EXPECT_EQ(tied->weight_bytes(), tied->weight_bytes_per_token());
}

}  // namespace
}  // namespace ts
