#include "eval/verify.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "support/rotated_model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

using testing::Contains;
using testing::HasSubstr;

class Verify : public testing::Test {
 protected:
  static test::TinyModel small() {
    test::TinyModel m;
    m.n_layers = 1;
    m.d_model = 64;
    m.d_ff = 64;
    m.n_heads = 2;
    m.n_kv_heads = 1;
    m.head_dim = 32;
    return m;
  }
  VerifyReport verify(const test::TinyModel& m, VerifyLevel level = VerifyLevel::kQuick) {
    test::write_tiny_model(m, dir_ / "m.gguf");
    VerifyOptions options;
    options.level = level;
    return verify_model(dir_ / "m.gguf", options, Progress{});
  }
  static std::vector<std::string> lines_of(const std::vector<VerifyFinding>& findings) {
    std::vector<std::string> lines;
    for (const VerifyFinding& finding : findings)
      lines.push_back(finding.what);
    return lines;
  }
  std::vector<std::string> problems(std::function<void(Metadata&)> edit) {
    test::TinyModel m = small();
    m.edit_metadata = std::move(edit);
    return lines_of(verify(m).problems);
  }
  static test::TinyModel hybrid() {
    test::TinyModel m = small();
    m.architecture = "qwen35";
    m.n_layers = 2;
    m.n_k_heads = 1;
    m.n_v_heads = 2;
    m.state_size = 32;
    return m;
  }
  /// Changes the first value of one tensor of the hybrid model.
  static test::TinyModel hybrid_with(const std::string& name, float value) {
    test::TinyModel m = hybrid();
    m.edit_tensors = [=](std::vector<test::TinyTensor>& tensors) {
      for (test::TinyTensor& t : tensors) {
        if (t.name == name) t.values[0] = value;
      }
    };
    return m;
  }
  test::TempDir dir_;
};

TEST_F(Verify, ASoundModelHasNoProblems) {
  EXPECT_THAT(problems([](Metadata&) {}), testing::IsEmpty());
}

TEST_F(Verify, ChatTemplatesThatCannotBeUsedAreProblems) {
  for (const std::string& source :
       {std::string("{% if %}"), std::string(size_t{2} << 20, 'x'), std::string("a\xFF")}) {
    EXPECT_THAT(problems([&](Metadata& md) {
                  md.set("tokenizer.chat_template", MetadataValue::string(source));
                }),
                Contains(HasSubstr("chat template")));
  }
}

TEST_F(Verify, TokenIdsOutsideTheVocabularyAreProblems) {
  for (const char* name : {"bos", "eos", "eot", "unknown", "padding"}) {
    const std::string key = std::string("tokenizer.ggml.") + name + "_token_id";
    EXPECT_THAT(problems([&](Metadata& md) { md.set(key, MetadataValue::u32(99999)); }),
                Contains(HasSubstr(key)));
  }
}

TEST_F(Verify, SettingsThatAreNotComputedAreProblems) {
  EXPECT_THAT(problems([](Metadata& md) { md.set("llama.logit_scale", MetadataValue::f32(0.5F)); }),
              Contains(HasSubstr("llama.logit_scale")));
}

TEST_F(Verify, WarningsOfARunAreNotesAtEveryLevel) {
  std::vector<std::string> logged;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level >= LogLevel::kWarning) logged.emplace_back(line);
  });
  test::TinyModel unstated = small();
  unstated.d_model = unstated.d_ff = 128;
  unstated.head_dim = 64;
  unstated.ternary = true;
  unstated.matrix_type = TypeId::kPQ2_0;
  test::TinyModel guessed = small();
  guessed.edit_metadata = [](Metadata& md) {
    md.set("general.sampling.temp", MetadataValue::f32(-1.0F));
  };
  test::RotationChoice tiled;
  tiled.block = 32;
  tiled.grouped = false;
  for (const VerifyLevel level : {VerifyLevel::kQuick, VerifyLevel::kFull}) {
    EXPECT_THAT(lines_of(verify(unstated, level).notes),
                Contains(HasSubstr("without prism.hadamard.* keys")).Times(1));
    const auto rotated = verify(test::stored_rotated(hybrid(), tiled), level);
    EXPECT_THAT(lines_of(rotated.problems), testing::IsEmpty());
    EXPECT_THAT(lines_of(rotated.notes), Contains(HasSubstr("gdn_v_grouped")).Times(1));
  }
  // What only a load looks at.
  EXPECT_THAT(lines_of(verify(guessed, VerifyLevel::kFull).notes),
              Contains(HasSubstr("general.sampling.temp")).Times(1));
  EXPECT_THAT(logged, testing::IsEmpty());
  set_log_sink({});
}

TEST_F(Verify, SmallTensorsAreReadAtLevelQuick) {
  EXPECT_THAT(lines_of(verify(hybrid()).problems), testing::IsEmpty());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const char* name :
       {"blk.0.ssm_a", "blk.0.ssm_dt.bias", "blk.0.ssm_conv1d.weight", "blk.0.ssm_norm.weight",
        "blk.0.ssm_alpha.weight", "blk.1.attn_q_norm.weight", "output_norm.weight"}) {
    for (const float bad : {nan, -infinity}) {
      const VerifyReport report = verify(hybrid_with(name, bad));
      ASSERT_EQ(report.problems.size(), 1U) << name;
      EXPECT_EQ(report.problems[0].tensor, name);
      EXPECT_TRUE(report.problems[0].offset.has_value());
    }
  }
}

TEST_F(Verify, ADecayThatWouldGrowIsAProblem) {
  for (const VerifyLevel level : {VerifyLevel::kQuick, VerifyLevel::kFull})
    EXPECT_THAT(lines_of(verify(hybrid_with("blk.0.ssm_a", 0.5F), level).problems),
                testing::ElementsAre(testing::AllOf(HasSubstr("blk.0.ssm_a"), HasSubstr("0.5"))));
}

}  // namespace
}  // namespace ts
