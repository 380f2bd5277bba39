// Every text of vocab/texts.txt gives the ids that the reference implementation gives.
#include <algorithm>

#include <gtest/gtest.h>

#include "golden_support.h"

namespace ts {
namespace {

using test::testdata;

class VocabTest : public testing::TestWithParam<const char*> {};

TEST_P(VocabTest, EncodesAsTheReferenceAndDecodesBack) {
  const std::filesystem::path vocab = testdata() / "vocab";
  const auto tokenizer = test::tokenizer_of(vocab / (std::string(GetParam()) + ".gguf"));
  const auto texts = test::vocab_texts();
  const auto ids = test::read_ids(vocab / (std::string(GetParam()) + ".ids"));
  ASSERT_EQ(texts.size(), 46u);
  ASSERT_EQ(ids.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer->encode(texts[i], {.add_special = false}), ids[i]) << texts[i];
    EXPECT_EQ(tokenizer->decode(ids[i], false), texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, VocabTest,
                         testing::Values("gpt-2", "starcoder", "phi-3", "llama-spm"),
                         [](const auto& vocab) {
                           std::string name = vocab.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ts
