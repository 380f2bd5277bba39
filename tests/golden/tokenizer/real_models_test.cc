// Tokenizers of downloaded models against other implementations (testdata/README.md).
#include <algorithm>
#include <cstdlib>

#include <gtest/gtest.h>

#include "golden_support.h"
#include "text/vocabulary.h"

namespace ts {
namespace {

/// Where tools/fetch_models.py puts models.
std::filesystem::path model_directory() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (const auto own = variable("TENSORSHARP_MODEL_DIR"); !own.empty()) return own;
  const auto cache = variable("XDG_CACHE_HOME");
  return std::filesystem::path(cache.empty() ? variable("HOME") + "/.cache" : cache) /
         "tensorsharp" / "models";
}

class RealModelTest : public testing::Test {
 protected:
  void open(const std::string& name) {
    const std::filesystem::path path = model_directory() / (name + ".gguf");
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << path << " is missing; get it with: tools/fetch_models.py " << name;
    }
    tokenizer_ = test::tokenizer_of(path);
  }
  void compare(const std::string& name) {
    const auto texts = test::golden_texts();
    const auto ids = test::golden_ids(name);
    ASSERT_GE(texts.size(), 200u);
    ASSERT_EQ(texts.size(), ids.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer_->encode(texts[i], {.add_special = false}), ids[i])
          << "text " << i << ": " << texts[i];
      // U+2581 is a space to SentencePiece and comes back as one.
      const std::string back =
          tokenizer_->data().model == "llama" ? sentencepiece_to_text(texts[i]) : texts[i];
      EXPECT_EQ(tokenizer_->decode(ids[i], false), back) << "text " << i;
    }
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(RealModelTest, SmolLm2) {
  ASSERT_NO_FATAL_FAILURE(open("smollm2-135m"));
  if (IsSkipped()) return;
  compare("smollm2-135m");
  EXPECT_EQ(tokenizer_->encode("Hello world! 123", {}),
            (std::vector<TokenId>{19556, 905, 17, 216, 33, 34, 35}));
  EXPECT_TRUE(tokenizer_->is_end(2));  // <|im_end|>
}

TEST_F(RealModelTest, Gemma3) {
  ASSERT_NO_FATAL_FAILURE(open("gemma3-270m"));
  if (IsSkipped()) return;
  compare("gemma3-270m");
  const TokenId bos = tokenizer_->data().bos.value();
  EXPECT_EQ(tokenizer_->encode("a", {}).front(), bos);
  const auto once = tokenizer_->encode("<bos>a", {.parse_special = true});
  EXPECT_EQ(std::count(once.begin(), once.end(), bos), 1);
}

}  // namespace
}  // namespace ts
