// Models stored rotated against ordinary models that compute the same, and against the models that
// wrong implementations would compute.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/engine.hpp>

#include "convert/convert.h"
#include "hadamard/transform.h"
#include "support/model_comparison.h"
#include "support/rotated_model.h"
#include "support/temp_dir.h"

namespace ts {
namespace {

using test::Difference;
using test::Mistake;
using test::RotationChoice;
using test::stored_rotated;
using test::TinyModel;
using test::unrotated_twin;

constexpr size_t kTokens = 24;
const int64_t kVocab = TinyModel{}.n_vocab;
constexpr double kMaxLogitError = 1e-3, kMaxDivergence = 1e-4;

Difference compare(const std::vector<float>& got, const std::vector<float>& want) {
  return test::compare(got, want, kTokens);
}

class RotatedModels : public testing::Test {
 protected:
  std::string write(const TinyModel& model) {
    const auto path = directory_.path() / ("m" + std::to_string(n_files_++) + ".gguf");
    test::write_tiny_model(model, path);
    return path.string();
  }
  static std::vector<float> logits(const std::string& path, bool exact, int64_t chunk = 0) {
    LoadOptions o = test::comparison_options(exact);
    if (chunk > 0) o.prefill_chunk = chunk;
    return test::engine_logits(path, test::some_ids(kTokens, kVocab), o);
  }
  std::vector<float> logits(const TinyModel& model, bool exact) {
    return logits(write(model), exact);
  }

  test::TempDir directory_;
  int n_files_ = 0;
};

TinyModel family(const std::string& architecture, TypeId type) {
  TinyModel m = test::tiny_family(architecture);
  m.matrix_type = type;
  m.ternary = type == TypeId::kPTQ1_0 || type == TypeId::kPQ2_0 || type == TypeId::kQ2_0 ||
              type == TypeId::kTQ2_0 || type == TypeId::kTQ1_0;
  m.d_ff = 512;
  if (architecture == "qwen35") {  // widths that are multiples of 256
    m.n_k_heads = 2;
    m.n_v_heads = 8;
    m.state_size = 64;
  }
  return m;
}

const std::vector<std::string> kFamilies = {"llama", "qwen2", "qwen3", "gemma3", "qwen35"};

TEST_F(RotatedModels, ComputeWhatTheirUnrotatedTwinsCompute) {
  for (const std::string& name : kFamilies) {
    std::vector<TypeId> types = {TypeId::kF16, TypeId::kQ8_0, TypeId::kPTQ1_0};
    if (name == "llama" || name == "qwen35")
      types = {TypeId::kF32,   TypeId::kF16,   TypeId::kQ8_0,  TypeId::kQ2_0,
               TypeId::kTQ2_0, TypeId::kPQ2_0, TypeId::kPTQ1_0};
    for (const TypeId type : types) {
      SCOPED_TRACE(name + " type " + std::to_string(static_cast<uint32_t>(type)));
      TinyModel m = family(name, type);
      m.embedding_type = type;
      RotationChoice choice;
      choice.block = type == TypeId::kQ8_0 ? 64 : 256;
      const std::string rotated = write(stored_rotated(m, choice));
      const std::vector<float> want = logits(unrotated_twin(m, choice), true);
      const Difference exact = compare(logits(rotated, true), want);
      EXPECT_LT(exact.worst, kMaxLogitError);
      EXPECT_LT(exact.divergence, kMaxDivergence);
      EXPECT_LE(compare(logits(rotated, false), want).relative, 0.06);
    }
  }
}

TEST_F(RotatedModels, EveryBlockSizeSignsOrNoneTiedOrNot) {
  for (const std::string name : {"llama", "qwen35"}) {
    for (const bool tied : {false, true}) {
      for (const bool signs : {false, true}) {
        for (const int64_t block : {2, 128}) {
          SCOPED_TRACE(name + " block " + std::to_string(block) + (tied ? " tied" : "") +
                       (signs ? " signs" : ""));
          TinyModel m = family(name, TypeId::kF32);
          m.tied = tied;
          const RotationChoice choice = {block, signs};
          const Difference d = compare(logits(stored_rotated(m, choice), true),
                                       logits(unrotated_twin(m, choice), true));
          EXPECT_LT(d.worst, kMaxLogitError);
          EXPECT_LT(d.divergence, kMaxDivergence);
        }
      }
    }
  }
}

TEST_F(RotatedModels, OnlySomeMatricesRotated) {
  for (const bool embedding : {false, true}) {
    for (const bool head : {false, true}) {
      SCOPED_TRACE(std::string(embedding ? "embedding " : "") + (head ? "head" : ""));
      const TinyModel m = family("llama", TypeId::kF16);
      RotationChoice choice;
      choice.embedding = embedding;
      choice.head = head;
      EXPECT_LT(
          compare(logits(stored_rotated(m, choice), true), logits(unrotated_twin(m, choice), true))
              .worst,
          kMaxLogitError);
    }
  }
}

TEST_F(RotatedModels, BothTernaryPacksGiveTheSameBits) {
  for (const std::string& name : kFamilies) {
    for (const bool exact : {false, true}) {
      TinyModel m = family(name, TypeId::kPTQ1_0);
      m.embedding_type = TypeId::kPTQ1_0;
      const std::vector<float> one = logits(stored_rotated(m, {}), exact);
      m.matrix_type = m.embedding_type = TypeId::kPQ2_0;
      EXPECT_EQ(one, logits(stored_rotated(m, {}), exact)) << name << " exact " << exact;
    }
  }
}

TEST_F(RotatedModels, HeadsMayHaveBeenTiledWhenRotated) {
  const TinyModel m = family("qwen35", TypeId::kPTQ1_0);
  RotationChoice choice;
  choice.grouped = false;
  const Difference d =
      compare(logits(stored_rotated(m, choice), true), logits(unrotated_twin(m, choice), true));
  EXPECT_LT(d.worst, kMaxLogitError);
}

TEST_F(RotatedModels, ChunksDoNotChangeBits) {
  // One token at a time, a few, all at once: the forms of the rows are made in different ways.
  TinyModel m = family("qwen3", TypeId::kPTQ1_0);
  m.embedding_type = TypeId::kQ8_0;
  const std::string path = write(stored_rotated(m, {}));
  for (const bool exact : {false, true}) {
    const std::vector<float> want = logits(path, exact, 64);
    LoadOptions o = test::comparison_options(exact);
    o.n_threads = 3;
    const auto engine = Engine::load(path, o);
    const auto session = engine->new_session();
    std::vector<float> row(static_cast<size_t>(engine->info().n_vocab)), got;
    for (const int32_t id : test::some_ids(kTokens, kVocab)) {
      session->eval(std::vector<int32_t>{id}, row, false);
      got.insert(got.end(), row.begin(), row.end());
    }
    EXPECT_EQ(got, want) << "exact " << exact;
  }
}

/// The same model with the outputs of some matrices rotated, H W, and the keys that say so.
TinyModel two_sided(TinyModel m, int64_t block, bool keys) {
  static const std::vector<std::string> kKinds = {"attn_q", "attn_v", "attn_output", "ffn_up",
                                                  "ffn_down"};
  std::vector<std::string> names;
  for (const std::string& kind : kKinds)
    names.push_back("blk.0." + kind + ".weight");
  const auto metadata_before = m.edit_metadata;
  m.edit_metadata = [=](Metadata& md) {
    if (metadata_before) metadata_before(md);
    if (!keys) return;
    md.set("tensorsharp.hadamard.output.block_size",
           MetadataValue::u32(static_cast<uint32_t>(block)));
    md.set("tensorsharp.hadamard.output.weight_names", MetadataValue::strings(names));
    md.set("tensorsharp.requires", MetadataValue::string("output_rotation"));
  };
  m.edit_tensors = [=](std::vector<test::TinyTensor>& tensors) {
    for (test::TinyTensor& t : tensors) {
      if (std::find(names.begin(), names.end(), t.name) == names.end()) continue;
      const auto n_in = static_cast<size_t>(t.shape[0]), n_out = static_cast<size_t>(t.shape[1]);
      std::vector<double> column(n_out);
      for (size_t c = 0; c < n_in; ++c) {
        for (size_t r = 0; r < n_out; ++r)
          column[r] = static_cast<double>(t.values[r * n_in + c]);
        transform_blocks(column.data(), n_out, static_cast<size_t>(block));
        for (size_t r = 0; r < n_out; ++r)
          t.values[r * n_in + c] = static_cast<float>(column[r]);
      }
    }
  };
  return m;
}

TEST_F(RotatedModels, OutputSideRotations) {
  for (const bool input_side : {false, true}) {
    TinyModel m = family("llama", TypeId::kF32);
    m.biases = true;  // they are added in the ordinary basis
    const std::vector<float> want = logits(input_side ? unrotated_twin(m, {}) : m, true);
    const TinyModel base = input_side ? stored_rotated(m, {}) : m;
    EXPECT_LT(compare(logits(two_sided(base, 64, true), true), want).worst, kMaxLogitError);
    EXPECT_LE(compare(logits(two_sided(base, 64, true), false), want).relative, 0.06);
    EXPECT_GT(compare(logits(two_sided(base, 64, false), true), want).worst, 100 * kMaxLogitError)
        << "the keys matter";
  }
}

TEST_F(RotatedModels, MistakesBreakTheLimits) {
  for (const std::string name : {"llama", "gemma3", "qwen35"}) {
    for (const Mistake mistake :
         {Mistake::kSignsLast, Mistake::kNoInverseOfEmbedding, Mistake::kHeadNotRotated,
          Mistake::kHeadsTiled, Mistake::kNothingRotated}) {
      if (mistake == Mistake::kHeadsTiled && name != "qwen35") continue;
      const TinyModel m = family(name, TypeId::kPTQ1_0);
      const Difference d = compare(logits(stored_rotated(m, {}), true),
                                   logits(unrotated_twin(m, {}, mistake), true));
      EXPECT_GT(d.worst, 100 * kMaxLogitError) << name << " mistake " << static_cast<int>(mistake);
      EXPECT_GT(d.divergence, 100 * kMaxDivergence)
          << name << " mistake " << static_cast<int>(mistake);
    }
  }
}

/// One scale for each 256 weights instead of 128, as TQ1_0 and TQ2_0 can hold it.
void share_scales(std::vector<test::TinyTensor>& tensors) {
  for (test::TinyTensor& t : tensors) {
    if (t.shape.n_dims != 2) continue;
    for (size_t pair = 0; pair < t.values.size(); pair += 256) {
      const auto largest = [&](size_t from) {
        float top = 0;
        for (size_t i = from; i < from + 128; ++i)
          top = std::max(top, std::fabs(t.values[i]));
        return top;
      };
      const float scale = largest(pair);
      for (size_t i = pair + 128; i < pair + 256; ++i)
        t.values[i] = t.values[i] == 0 ? 0 : std::copysign(scale, t.values[i]);
    }
  }
}

TEST_F(RotatedModels, OtherTypesOfTheSameWeightsGiveTheSameModel) {
  // The lists decide, never the type: re-encoding keeps them and the model stays what it was.
  TinyModel m = family("qwen3", TypeId::kPTQ1_0);
  m.embedding_type = TypeId::kPTQ1_0;
  m.edit_tensors = share_scales;
  const std::string source = write(stored_rotated(m, {}));
  const std::vector<float> want = logits(unrotated_twin(m, {}), true);
  for (const std::string type : {"pq2_0", "q2_0", "tq2_0", "tq1_0", "f16", "q8_0"}) {
    const auto path = directory_.path() / (type + ".gguf");
    ConvertOptions options;
    options.type = type;
    options.lossy = type == "q8_0";  // its scales round; the others hold the weights exactly
    convert_model(source, path, options, {});
    const Difference d = compare(logits(path.string(), true), want);
    EXPECT_LT(d.worst, options.lossy ? 0.2 : kMaxLogitError) << type;
    EXPECT_LT(d.divergence, options.lossy ? 1e-3 : kMaxDivergence) << type;
  }
}

}  // namespace
}  // namespace ts
