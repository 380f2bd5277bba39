// A trained model of 260 thousand parameters against a float64 computation made elsewhere.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tensorsharp/engine.hpp>

namespace ts {
namespace {

const std::string kModel = std::string(TS_TESTDATA_DIR) + "/stories260k.gguf";

nlohmann::json cases() {
  std::ifstream in(std::string(TS_TESTDATA_DIR) + "/stories260k/golden.json");
  return nlohmann::json::parse(in).at("cases");
}

std::shared_ptr<const Engine> load(const LoadOptions& options) {
  return Engine::load(kModel, options);
}

struct Setting {
  const char* isa;
  bool exact;
  KvCacheType kv;
};

class Stories : public testing::TestWithParam<Setting> {
 protected:
  static LoadOptions options() {
    LoadOptions o;
    o.isa = GetParam().isa;
    o.exact = GetParam().exact;
    o.kv = GetParam().kv;
    o.n_threads = 2;
    return o;
  }
};

TEST_P(Stories, LogitsMatchFloat64) {
  const auto engine = load(options());
  for (const auto& c : cases()) {
    const auto prompt = c.at("prompt_ids").get<std::vector<int32_t>>();
    const auto expected = c.at("logits_at_last_prompt_token").get<std::vector<float>>();
    std::vector<float> logits(expected.size());
    engine->new_session()->eval(prompt, logits);
    double worst = 0;
    for (size_t i = 0; i < logits.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - expected[i]));
    // f16 keys and values are good for about three digits; f32 ones for the full 1e-3.
    EXPECT_LT(worst, GetParam().kv == KvCacheType::kF32 ? 1e-3 : 2e-2) << c.at("prompt");
  }
}

TEST_P(Stories, GreedyTokensMatch) {
  const auto engine = load(options());
  for (const auto& c : cases()) {
    const auto prompt = c.at("prompt_ids").get<std::vector<int32_t>>();
    const auto expected = c.at("greedy_ids_total_64").get<std::vector<int32_t>>();
    GenerateOptions generate;
    generate.sampling.temperature = 0;
    generate.max_tokens = static_cast<int64_t>(expected.size() - prompt.size());
    generate.ignore_end = true;
    const auto session = engine->new_session();
    const GenerateResult result = session->generate(prompt, generate);
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), result.token_ids.begin(), result.token_ids.end());
    EXPECT_EQ(all, expected);
    EXPECT_EQ(result.stop_reason, StopReason::kLength);
    // The golden text shows the newline token as <0x0A>.
    std::string text = c.at("text").get<std::string>();
    for (size_t at; (at = text.find("<0x0A>")) != std::string::npos;)
      text.replace(at, 6, "\n");
    EXPECT_EQ(c.at("prompt").get<std::string>() + result.text, text);
  }
}

TEST_P(Stories, TokenizesThePrompts) {
  const auto engine = load(options());
  for (const auto& c : cases()) {
    EXPECT_EQ(engine->tokenize(c.at("prompt").get<std::string>()),
              c.at("prompt_ids").get<std::vector<int32_t>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Stories,
                         testing::Values(Setting{"ref", true, KvCacheType::kF32},
                                         Setting{"auto", true, KvCacheType::kF32},
                                         Setting{"auto", false, KvCacheType::kF32},
                                         Setting{"auto", false, KvCacheType::kF16}));

}  // namespace
}  // namespace ts
