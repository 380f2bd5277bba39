// Hybrid models (qwen35): kinds of layers, prediction blocks, and what loading refuses.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
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

MetadataValue bools(std::vector<bool> values) {
  return {MetadataType::kArray, MetadataArray{MetadataType::kBool, std::move(values)}};
}

class LoadHybrid : public testing::Test {
 protected:
  static TinyModel small() {
    TinyModel m;
    m.architecture = "qwen35";
    m.n_layers = 4;
    m.d_model = 32;
    m.d_ff = 32;
    m.n_heads = 2;
    m.n_kv_heads = 1;
    m.head_dim = 32;
    m.state_size = 8;
    return m;
  }
  std::unique_ptr<const Model> load(const TinyModel& m) {
    const auto path = directory_.path() / "m.gguf";
    test::write_tiny_model(m, path);
    CpuBackendOptions options;
    options.n_threads = 1;
    backend_ = make_cpu_backend(options);
    return load_model(GgufFile::open(path), backend_.get());
  }
  /// The error of loading, "" when there is none. Its kind must be as given.
  std::string refusal(const TinyModel& m, const std::string& kind = "format_error") {
    try {
      load(m);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.kind().name), kind) << error.what();
      return error.what();
    }
    return "";
  }
  static std::string kinds(const Model& model) {
    std::string out;
    for (const LayerShape& layer : model.config().layers)
      out += layer.recurrent ? 'r' : 'a';
    return out;
  }
  test::TempDir directory_;
  std::shared_ptr<Backend> backend_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(LoadHybrid, KindsOfLayersInOrderOfPreference) {
  TinyModel m = small();
  m.interval = 4;
  EXPECT_EQ(kinds(*load(m)), "rrra");
  // The tensors say more than the interval.
  m.edit_metadata = [](Metadata& md) {
    md.set("qwen35.full_attention_interval", MetadataValue::u32(2));
  };
  EXPECT_EQ(kinds(*load(m)), "rrra");
  // A list of key heads says more than the tensors, a list of kinds most.
  m.edit_metadata = [](Metadata& md) {
    md.set("qwen35.attention.head_count_kv", MetadataValue::i32_array({0, 0, 0, 1}));
  };
  EXPECT_EQ(kinds(*load(m)), "rrra");
  m.edit_metadata = [](Metadata& md) {
    md.set("qwen35.attention.head_count_kv", MetadataValue::i32_array({0, 1, 0, 1}));
  };
  EXPECT_TRUE(contains(refusal(m), "blk.1.attn_q.weight"));
  m.edit_metadata = [](Metadata& md) {
    md.set("qwen35.attention.head_count_kv", MetadataValue::i32_array({0, 1, 0, 1}));
    md.set("qwen35.attention.recurrent_layers", bools({true, true, true, false}));
  };
  EXPECT_EQ(kinds(*load(m)), "rrra");
  m.edit_metadata = [](Metadata& md) {
    md.set("qwen35.attention.head_count_kv", MetadataValue::i32_array({1, 1, 1, 0}));
    md.set("qwen35.attention.recurrent_layers", bools({true, true, true, false}));
  };
  EXPECT_TRUE(contains(refusal(m), "head_count_kv is 0 in layer 3"));
}

TEST_F(LoadHybrid, DamagedKeysAreNamed) {
  const std::vector<std::pair<std::string, MetadataValue>> cases = {
      {"ssm.conv_kernel", MetadataValue::u32(0)},
      {"ssm.conv_kernel", MetadataValue::u32(1000)},
      {"ssm.state_size", MetadataValue::u32(0)},
      {"ssm.state_size", MetadataValue::u32(16)},
      {"ssm.state_size", MetadataValue::u64(uint64_t{1} << 40)},
      {"ssm.group_count", MetadataValue::u32(0)},
      {"ssm.group_count", MetadataValue::u32(4)},
      {"ssm.group_count", MetadataValue::i32(-2)},
      {"ssm.time_step_rank", MetadataValue::u32(0)},
      {"ssm.time_step_rank", MetadataValue::u32(7)},
      {"ssm.time_step_rank", MetadataValue::string("6")},
      {"ssm.inner_size", MetadataValue::u32(47)},
      {"ssm.inner_size", MetadataValue::f32(48)},
      {"rope.dimension_count", MetadataValue::u32(15)},
      {"rope.dimension_count", MetadataValue::u32(64)},
      {"full_attention_interval", MetadataValue::u32(0)},
      {"nextn_predict_layers", MetadataValue::u32(4)},
      {"nextn_predict_layers", MetadataValue::i32(-1)},
      {"attention.recurrent_layers", bools({true, false})},
      {"attention.recurrent_layers", MetadataValue::u32(1)},
      {"attention.head_count_kv", MetadataValue::i32_array({0, 1})},
      {"attention.head_count_kv", MetadataValue::u32(0)},
      {"attention.key_length", MetadataValue::u32(33)},
  };
  for (const auto& [key, value] : cases) {
    TinyModel m = small();
    m.edit_metadata = [&](Metadata& md) { md.set("qwen35." + key, value); };
    // A head count of zero everywhere makes all layers recurrent, so a tensor is reported.
    const std::string what = refusal(m);
    const std::string name = key.substr(key.find('.') + 1);
    EXPECT_TRUE(contains(what, name) || contains(what, "blk.")) << key << ": " << what;
    EXPECT_TRUE(contains(what, "m.gguf")) << what;
  }
  for (const std::string key : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
                                "ssm.time_step_rank", "ssm.inner_size", "rope.dimension_count"}) {
    TinyModel m = small();
    m.edit_metadata = [&](Metadata& md) { md.erase("qwen35." + key); };
    EXPECT_TRUE(contains(refusal(m), "qwen35." + key + ": missing")) << key;
  }
}

TEST_F(LoadHybrid, MissingAndMisshapenTensorsAreNamed) {
  for (const std::string name :
       {"blk.0.attn_qkv.weight", "blk.0.attn_gate.weight", "blk.0.ssm_conv1d.weight",
        "blk.0.ssm_alpha.weight", "blk.0.ssm_beta.weight", "blk.0.ssm_dt.bias", "blk.0.ssm_a",
        "blk.0.ssm_norm.weight", "blk.0.ssm_out.weight", "blk.0.post_attention_norm.weight",
        "blk.1.attn_q.weight", "blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight",
        "blk.1.attn_output.weight", "blk.1.post_attention_norm.weight", "blk.2.ffn_down.weight"}) {
    TinyModel m = small();
    m.edit_tensors = [&](std::vector<TinyTensor>& tensors) {
      std::erase_if(tensors, [&](const TinyTensor& t) { return t.name == name; });
    };
    EXPECT_TRUE(contains(refusal(m), name + " is missing")) << name;
    m.edit_tensors = [&](std::vector<TinyTensor>& tensors) {
      for (TinyTensor& t : tensors) {
        if (t.name != name) continue;
        t.shape = t.shape.n_rows() > 1 ? Shape{t.shape[0], t.shape[1] + 1} : Shape{t.shape[0] + 1};
        t.values.resize(static_cast<size_t>(t.shape.n_elems()));
      }
    };
    EXPECT_TRUE(contains(refusal(m), name + " has shape")) << name;
  }
  // A query projection without gates.
  TinyModel m = small();
  m.edit_tensors = [](std::vector<TinyTensor>& tensors) {
    for (TinyTensor& t : tensors) {
      if (t.name != "blk.1.attn_q.weight") continue;
      t.shape = Shape{32, 64};
      t.values.resize(32 * 64);
    }
  };
  const std::string what = refusal(m);
  EXPECT_TRUE(contains(what, "{32, 64}") && contains(what, "{32, 128}")) << what;
}

TEST_F(LoadHybrid, DecayFactorsMustBeNegative) {
  TinyModel m = small();
  m.edit_tensors = [](std::vector<TinyTensor>& tensors) {
    for (TinyTensor& t : tensors) {
      if (t.name == "blk.2.ssm_a") t.values[3] = 0.75F;  // A itself instead of -exp(A)
    }
  };
  const std::string what = refusal(m);
  EXPECT_TRUE(contains(what, "blk.2.ssm_a") && contains(what, "0.75") && contains(what, "index 3"))
      << what;
}

/// Tensors of a multi-token prediction block.
void add_prediction_block(std::vector<TinyTensor>& tensors, int64_t index) {
  const std::string p = "blk." + std::to_string(index) + ".";
  for (const char* name : {"nextn.enorm.weight", "attn_norm.weight"})
    tensors.push_back({p + name, TypeId::kF32, Shape{32}, std::vector<float>(32, 1.0F)});
  tensors.push_back(
      {p + "nextn.eh_proj.weight", TypeId::kF32, Shape{64, 32}, std::vector<float>(64 * 32)});
}

TEST_F(LoadHybrid, PredictionBlocksAreLeftOutWithANote) {
  std::vector<std::string> notes;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level != LogLevel::kDebug) notes.emplace_back(line);
  });
  for (const bool key : {true, false}) {
    notes.clear();
    TinyModel m = small();
    m.edit_metadata = [&](Metadata& md) {
      md.set("qwen35.block_count", MetadataValue::u32(5));
      if (key) md.set("qwen35.nextn_predict_layers", MetadataValue::u32(1));
    };
    m.edit_tensors = [](std::vector<TinyTensor>& t) { add_prediction_block(t, 4); };
    const auto model = load(m);
    EXPECT_EQ(model->config().n_layers, 4);
    EXPECT_EQ(kinds(*model), "rara");
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_TRUE(contains(notes[0], "3 tensors") && contains(notes[0], "blk.4")) << notes[0];
    for (const std::string& name : model->tensor_names())
      EXPECT_FALSE(contains(name, "blk.4")) << name;
  }
  // Lists per layer may count the prediction block or not.
  for (const size_t count : {4u, 5u}) {
    TinyModel m = small();
    m.edit_metadata = [&](Metadata& md) {
      std::vector<bool> list = {true, false, true, false, false};
      list.resize(count);
      md.set("qwen35.block_count", MetadataValue::u32(5));
      md.set("qwen35.nextn_predict_layers", MetadataValue::u32(1));
      md.set("qwen35.attention.recurrent_layers", bools(list));
    };
    EXPECT_EQ(kinds(*load(m)), "rara") << count;
  }
  set_log_sink({});
  // A count that would drop a layer of the model itself.
  TinyModel m = small();
  m.edit_metadata = [&](Metadata& md) {
    md.set("qwen35.nextn_predict_layers", MetadataValue::u32(1));
  };
  EXPECT_TRUE(contains(refusal(m), "nextn.eh_proj.weight"));
}

TEST_F(LoadHybrid, MixturesOfExpertsAreRefusedByName) {
  for (const std::string name : {"qwen35moe", "qwen3next"}) {
    TinyModel m = small();
    m.edit_metadata = [&](Metadata& md) {
      md.set("general.architecture", MetadataValue::string(name));
    };
    const std::string what = refusal(m, "unsupported");
    EXPECT_TRUE(contains(what, name) && contains(what, "experts")) << what;
  }
  TinyModel m = small();
  m.edit_metadata = [](Metadata& md) { md.set("qwen35.expert_count", MetadataValue::u32(8)); };
  EXPECT_TRUE(contains(refusal(m, "unsupported"), "expert_count"));
}

TEST_F(LoadHybrid, StateHoldsKeysOfAttentionLayersOnly) {
  const auto model = load(small());
  const StateLayout layout = model->state_layout(1000, KvType::kF16);
  EXPECT_TRUE(layout.has_recurrent());
  EXPECT_EQ(layout.capacity(), 1000);
  EXPECT_EQ(layout.kv_bytes(), 2u * 1000 * 2 * 32 * 2);
  // Two layers of 6 heads of 8 x 8, and 3 rows of (2 + 2 + 6) * 8 channels.
  EXPECT_EQ(layout.recurrent_bytes(), 2u * 4 * (6 * 64 + 3 * 80));
  State state(*backend_, layout);
  EXPECT_EQ(state.cache(1).capacity(), 1000);
  EXPECT_EQ(state.recurrent(0).shape().n_v_heads, 6);
  EXPECT_EQ(state.rewind_target(0), 0);
}

}  // namespace
}  // namespace ts
