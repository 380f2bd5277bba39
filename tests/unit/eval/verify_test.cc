#include "eval/verify.h"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace ts {
namespace {

using testing::Contains;
using testing::HasSubstr;

class Verify : public testing::Test {
 protected:
  std::vector<std::string> problems(std::function<void(Metadata&)> edit) {
    test::TinyModel m;
    m.n_layers = 1;
    m.d_model = 64;
    m.d_ff = 64;
    m.n_heads = 2;
    m.n_kv_heads = 1;
    m.head_dim = 32;
    m.edit_metadata = std::move(edit);
    test::write_tiny_model(m, dir_ / "m.gguf");
    std::vector<std::string> lines;
    for (const VerifyFinding& finding : verify_model(dir_ / "m.gguf", {}, Progress{}).problems)
      lines.push_back(finding.what);
    return lines;
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

}  // namespace
}  // namespace ts
