// Checks must not make large vocabularies slow to open.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "format/gguf.h"
#include "support/cpu_timer.h"
#include "support/gguf_builder.h"

namespace ts {
namespace {

TEST(GgufSpeedTest, AHeaderOfALargeVocabularyParsesFast) {
  std::vector<std::string> tokens(250'000), merges(280'000);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = "tok" + std::to_string(i * 7919);
  for (size_t i = 0; i < merges.size(); ++i)
    merges[i] = "left" + std::to_string(i) + " right" + std::to_string(i * 31);
  test::GgufBuilder b;
  b.kv_strings("tokenizer.ggml.tokens", tokens).kv_strings("tokenizer.ggml.merges", merges);
  b.kv_array<int32_t>("tokenizer.ggml.token_type", 5, std::vector<int32_t>(tokens.size(), 1));
  b.kv_array<float>("tokenizer.ggml.scores", 6, std::vector<float>(tokens.size(), -1));
  const std::string bytes = b.build();
  const test::CpuTimer timer;
  const auto file = GgufFile::parse(test::as_bytes(bytes), "m.gguf");
  const double seconds = timer.seconds();
  EXPECT_LT(seconds, 0.3 * test::kTimeFactor);
  EXPECT_EQ(file->metadata().get_strings("tokenizer.ggml.merges")->back(), merges.back());
  RecordProperty("parse_ms", static_cast<int>(seconds * 1000));
}

TEST(GgufSpeedTest, ManyTensorsParseFast) {
  test::GgufBuilder b;
  for (int i = 0; i < 50'000; ++i)
    b.tensor("blk." + std::to_string(i) + ".weight", {1}, 0, "abcd");
  const std::string bytes = b.build();
  const test::CpuTimer timer;
  EXPECT_EQ(GgufFile::parse(test::as_bytes(bytes), "m.gguf")->tensors().size(), 50'000u);
  EXPECT_LT(timer.seconds(), 0.5 * test::kTimeFactor);
}

}  // namespace
}  // namespace ts
