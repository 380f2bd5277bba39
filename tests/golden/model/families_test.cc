// Tiny random models of every family and weight type against the plain double-precision
// computation in reference_forward.cc.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

#include "reference_forward.h"
#include "support/model_comparison.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

using test::compare;
using test::comparison_options;
using test::engine_logits;
using test::some_ids;
using test::TinyModel;

constexpr size_t kTokens = 24;

class Families : public testing::Test {
 protected:
  std::string write(const TinyModel& model) {
    const auto path = directory_.path() / ("m" + std::to_string(n_files_++) + ".gguf");
    test::write_tiny_model(model, path);
    return path.string();
  }
  /// Both paths against the reference, within the limits the project promises.
  void check(const TinyModel& model, const std::string& what, bool int8 = true) {
    SCOPED_TRACE(what);
    const std::string path = write(model);
    const auto ids = some_ids(kTokens, model.n_vocab);
    const auto want = test::reference_logits(path, ids);
    EXPECT_LT(compare(engine_logits(path, ids, comparison_options(true)), want, ids.size()).worst,
              1e-3);
    if (int8) {
      EXPECT_LE(
          compare(engine_logits(path, ids, comparison_options(false)), want, ids.size()).relative,
          0.06);
    }
  }

  test::TempDir directory_;
  int n_files_ = 0;
};

TinyModel family(const std::string& architecture) {
  TinyModel m = test::tiny_family(architecture);
  if (architecture == "qwen3") m.head_dim = 96;  // no power of two
  return m;
}

const std::vector<std::string> kFamilies = {"llama", "qwen2", "qwen3", "gemma3", "qwen35"};

TEST_F(Families, EveryWeightType) {
  struct Type {
    TypeId id;
    bool ternary;
  };
  for (const std::string& name : kFamilies) {
    for (const Type type :
         {Type{TypeId::kF32, false}, Type{TypeId::kF16, false}, Type{TypeId::kBF16, false},
          Type{TypeId::kQ8_0, false}, Type{TypeId::kQ4_0, false}, Type{TypeId::kQ4_1, false},
          Type{TypeId::kQ2_0, true}, Type{TypeId::kPQ2_0, true}, Type{TypeId::kPTQ1_0, true}}) {
      TinyModel m = family(name);
      // All widths are multiples of 128, as the ternary types need.
      if (m.head_dim == 96) m.n_heads = 4;  // 384
      m.matrix_type = type.id;
      m.ternary = type.ternary;
      check(m, name + " type " + std::to_string(static_cast<uint32_t>(type.id)));
    }
  }
}

TEST_F(Families, QuantizedEmbeddingTiedAndUntied) {
  for (const std::string& name : kFamilies) {
    for (const bool tied : {false, true}) {
      TinyModel m = family(name);
      m.tied = tied;
      m.embedding_type = TypeId::kQ8_0;
      m.matrix_type = TypeId::kQ8_0;
      check(m, name + (tied ? " tied" : " untied"));
    }
  }
}

TEST_F(Families, OptionalBiases) {
  TinyModel llama = family("llama");
  llama.biases = true;
  check(llama, "llama");
  TinyModel qwen2 = family("qwen2");
  qwen2.edit_tensors = [](std::vector<test::TinyTensor>& tensors) {
    std::vector<float> bias(300);
    for (size_t i = 0; i < bias.size(); ++i)
      bias[i] = 0.01F * static_cast<float>(i % 37);
    tensors.push_back({"output.bias", TypeId::kF32, Shape{300}, bias});
  };
  check(qwen2, "qwen2 output bias");
}

TEST_F(Families, HeadGroupings) {
  for (const int64_t kv : {1, 2, 4}) {
    TinyModel m = family("llama");
    m.n_kv_heads = kv;
    check(m, "key heads " + std::to_string(kv));
  }
}

TEST_F(Families, RopeScalings) {
  TinyModel linear = family("llama");
  linear.edit_metadata = [](Metadata& md) {
    md.set("llama.rope.scaling.type", MetadataValue::string("linear"));
    md.set("llama.rope.scaling.factor", MetadataValue::f32(4.0F));
  };
  check(linear, "linear");
  TinyModel yarn = family("qwen3");
  yarn.edit_metadata = [](Metadata& md) {
    md.set("qwen3.rope.scaling.type", MetadataValue::string("yarn"));
    md.set("qwen3.rope.scaling.factor", MetadataValue::f32(4.0F));
    md.set("qwen3.rope.scaling.original_context_length", MetadataValue::u32(256));
    md.set("qwen3.rope.freq_base", MetadataValue::f32(1e6F));
  };
  check(yarn, "yarn");
  TinyModel factors = family("llama");
  factors.edit_tensors = [](std::vector<test::TinyTensor>& tensors) {
    std::vector<float> f(32);
    for (size_t i = 0; i < f.size(); ++i)
      f[i] = 1.0F + 0.25F * static_cast<float>(i);
    tensors.push_back({"rope_freqs.weight", TypeId::kF32, Shape{32}, f});
  };
  check(factors, "frequency factors");
  TinyModel partial = family("qwen2");
  partial.edit_metadata = [](Metadata& md) {
    md.set("qwen2.rope.dimension_count", MetadataValue::u32(32));
  };
  check(partial, "partial rotary");
  TinyModel gemma = family("gemma3");
  gemma.edit_metadata = [](Metadata& md) {
    md.set("gemma3.rope.scaling.type", MetadataValue::string("linear"));
    md.set("gemma3.rope.scaling.factor", MetadataValue::f32(8.0F));
    md.set("gemma3.rope.freq_base_swa", MetadataValue::f32(5000.0F));
  };
  check(gemma, "gemma3: scaling on global layers only");
}

TEST_F(Families, Gemma3WithoutWindowAndWithSoftcap) {
  TinyModel wide = family("gemma3");
  wide.sliding_window = 0;
  check(wide, "no local layers");
  TinyModel capped = family("gemma3");
  capped.edit_metadata = [](Metadata& md) {
    md.set("gemma3.final_logit_softcapping", MetadataValue::f32(1.5F));
  };
  check(capped, "softcap");
}

TEST_F(Families, HybridsWithWholeBlocksOfTheGrid) {
  // Long enough for the recurrence's chunked form and a rest.
  TinyModel m = family("qwen35");
  m.n_layers = 4;
  m.interval = 4;
  const std::string path = write(m);
  const auto ids = some_ids(150, m.n_vocab);
  const auto want = test::reference_logits(path, ids);
  EXPECT_LT(compare(engine_logits(path, ids, comparison_options(true)), want, ids.size()).worst,
            1e-3);
}

TEST_F(Families, HybridShapes) {
  for (const int64_t n_v : {1, 2, 5}) {
    TinyModel m = family("qwen35");
    m.n_k_heads = 1;
    m.n_v_heads = n_v;
    m.state_size = 24;
    m.conv_kernel = n_v + 1;
    m.n_rot = 64;
    m.tied = true;
    check(m, "value heads " + std::to_string(n_v), false);
  }
}

TEST_F(Families, WindowChangesTheResult) {
  const auto ids = some_ids(kTokens, 300);
  TinyModel narrow = family("gemma3"), wide = family("gemma3");
  wide.sliding_window = 4096;
  const auto a = engine_logits(write(narrow), ids, comparison_options(true));
  const auto b = engine_logits(write(wide), ids, comparison_options(true));
  const size_t row = 300;
  // The same within the window, different beyond it.
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 5 * row, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 10 * row, a.begin() + 11 * row, b.begin() + 10 * row));
}

TEST_F(Families, BothTernaryPacksAreBitIdentical) {
  const auto ids = some_ids(kTokens, 300);
  for (const std::string& name : kFamilies) {
    for (const bool exact : {true, false}) {
      TinyModel m = family(name);
      m.ternary = true;
      m.matrix_type = TypeId::kPTQ1_0;
      m.embedding_type = TypeId::kPTQ1_0;
      const auto a = engine_logits(write(m), ids, comparison_options(exact));
      m.matrix_type = TypeId::kPQ2_0;
      m.embedding_type = TypeId::kPQ2_0;
      const auto b = engine_logits(write(m), ids, comparison_options(exact));
      EXPECT_EQ(a, b) << name << (exact ? " exact" : " int8");
    }
  }
}

TEST_F(Families, ReferenceKernelsGiveTheSameModel) {
  for (const std::string& name : kFamilies) {
    TinyModel m = family(name);
    m.matrix_type = TypeId::kQ4_0;
    const std::string path = write(m);
    const auto ids = some_ids(kTokens, m.n_vocab);
    LoadOptions ref = comparison_options(false);
    ref.isa = "ref";
    const auto a = engine_logits(path, ids, comparison_options(false));
    const auto b = engine_logits(path, ids, ref);
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::fabs(a[i] - b[i])));
    EXPECT_LT(worst, 1e-3) << name;
  }
}

}  // namespace
}  // namespace ts
