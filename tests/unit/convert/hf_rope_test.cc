#include "convert/hf_rope.h"

#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/error_matchers.h"

namespace ts {
namespace {

using test::catch_error;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HfConfig config_of(const std::string& settings) {
  return HfConfig::parse(
      R"({"architectures":["X"])" + (settings.empty() ? "" : "," + settings) + "}", "config.json");
}

struct Written {
  Metadata metadata;
  std::vector<std::string> notes;
};

Written write(const std::string& settings, const std::string& architecture = "qwen3") {
  const HfConfig config = config_of(settings);
  Written w;
  write_rope_metadata(config, read_hf_rope(config, "full_attention", 10000.0), architecture,
                      w.metadata, w.notes);
  return w;
}

TEST(HfRopeTest, OldForm) {
  EXPECT_DOUBLE_EQ(*write("").metadata.get_float("qwen3.rope.freq_base"), 10000.0);
  const Written w = write(R"("rope_theta":500000.0,"rope_scaling":{"type":"linear","factor":8})");
  EXPECT_DOUBLE_EQ(*w.metadata.get_float("qwen3.rope.freq_base"), 500000.0);
  EXPECT_EQ(w.metadata.get_string("qwen3.rope.scaling.type"), "linear");
  EXPECT_DOUBLE_EQ(*w.metadata.get_float("qwen3.rope.scaling.factor"), 8.0);
  EXPECT_EQ(write(R"("rope_scaling":null,"rope_theta":7)").metadata.size(), 1u);
}

TEST(HfRopeTest, NewFormWinsAndMayLackTheBase) {
  const Written w = write(R"("rope_theta":77.0,"rope_scaling":{"type":"linear","factor":2},)"
                          R"("rope_parameters":{"rope_type":"default"})");
  EXPECT_DOUBLE_EQ(*w.metadata.get_float("qwen3.rope.freq_base"), 77.0);
  EXPECT_FALSE(w.metadata.contains("qwen3.rope.scaling.type"));
}

TEST(HfRopeTest, FormWithKindsOfLayers) {
  const HfConfig config = config_of(
      R"("rope_parameters":{"full_attention":{"rope_theta":1000000.0,"rope_type":"linear",)"
      R"("factor":8.0},"sliding_attention":{"rope_theta":20000.0,"rope_type":"default"}})");
  const HfRope global = read_hf_rope(config, "full_attention", 1.5);
  EXPECT_EQ(global.type, "linear");
  EXPECT_DOUBLE_EQ(global.base, 1e6);
  const HfRope local = read_hf_rope(config, "sliding_attention", 1.5);
  EXPECT_EQ(local.type, "default");
  EXPECT_DOUBLE_EQ(local.base, 20000.0);
}

TEST(HfRopeTest, FlatFormsScaleGlobalLayersOnly) {
  const HfConfig config =
      config_of(R"("rope_theta":1000000.0,"rope_scaling":{"rope_type":"linear","factor":8.0},)"
                R"("rope_local_base_freq":12345.0)");
  EXPECT_EQ(read_hf_rope(config, "full_attention", 2).type, "linear");
  const HfRope local = read_hf_rope(config, "sliding_attention", 2);
  EXPECT_EQ(local.type, "default");
  EXPECT_DOUBLE_EQ(local.base, 12345.0);
}

TEST(HfRopeTest, Yarn) {
  const Written w =
      write(R"("max_position_embeddings":65536,"rope_scaling":{"rope_type":"yarn","factor":4.0,)"
            R"("original_max_position_embeddings":16384,"beta_fast":16,"attention_factor":1.0})");
  const Metadata& m = w.metadata;
  EXPECT_EQ(m.get_string("qwen3.rope.scaling.type"), "yarn");
  EXPECT_DOUBLE_EQ(*m.get_float("qwen3.rope.scaling.factor"), 4.0);
  EXPECT_EQ(m.get_int("qwen3.rope.scaling.original_context_length", 0, 1 << 20), 16384);
  EXPECT_DOUBLE_EQ(*m.get_float("qwen3.rope.scaling.yarn_beta_fast"), 16.0);
  EXPECT_FALSE(m.contains("qwen3.rope.scaling.yarn_beta_slow"));
  EXPECT_NEAR(*m.get_float("qwen3.rope.scaling.attn_factor"), 1.0 / (1.0 + 0.1 * std::log(4.0)),
              1e-7);
  EXPECT_THAT(w.notes, IsEmpty());
}

TEST(HfRopeTest, YarnFactorThatDisagreesIsNoted) {
  const Written w =
      write(R"("max_position_embeddings":65536,"rope_scaling":{"rope_type":"yarn","factor":2.0,)"
            R"("original_max_position_embeddings":16384})");
  EXPECT_DOUBLE_EQ(*w.metadata.get_float("qwen3.rope.scaling.factor"), 2.0);
  ASSERT_EQ(w.notes.size(), 1u);
  EXPECT_THAT(w.notes[0], AllOf(HasSubstr("rope_scaling.factor is 2"), HasSubstr("4")));
}

TEST(HfRopeTest, DynamicIsNoted) {
  const Written w = write(R"("rope_scaling":{"type":"dynamic","factor":2.0})");
  EXPECT_EQ(w.metadata.size(), 1u);
  EXPECT_EQ(w.notes.size(), 1u);
}

TEST(HfRopeTest, Refusals) {
  struct Case {
    const char *settings, *key;
    ErrorCode code;
  };
  const Case cases[] = {
      {R"("rope_scaling":{"rope_type":"longrope","factor":2})", "rope_scaling.rope_type",
       ErrorCode::kUnsupported},
      {R"("rope_scaling":{"rope_type":"llama3","factor":2})", "rope_scaling.rope_type",
       ErrorCode::kUnsupported},
      {R"("rope_scaling":{"rope_type":"yarn","factor":2,"mscale":1})", "rope_scaling.mscale",
       ErrorCode::kUnsupported},
      {R"("rope_scaling":{"rope_type":"yarn","factor":2,"truncate":false})",
       "rope_scaling.truncate", ErrorCode::kUnsupported},
      {R"("rope_scaling":{"rope_type":"yarn"})", "rope_scaling.factor", ErrorCode::kFormat},
      {R"("rope_scaling":{"rope_type":"linear","factor":0})", "rope_scaling.factor",
       ErrorCode::kFormat},
      {R"("rope_scaling":{"rope_type":"linear","factor":"8"})", "rope_scaling.factor",
       ErrorCode::kFormat},
      {R"("rope_scaling":{"rope_type":3})", "rope_scaling.rope_type", ErrorCode::kFormat},
      {R"("rope_scaling":[1])", "rope_scaling", ErrorCode::kFormat},
      {R"("rope_theta":0.5)", "rope_theta", ErrorCode::kFormat},
      {R"("rope_theta":-1e300)", "rope_theta", ErrorCode::kFormat},
      {R"("partial_rotary_factor":0.5)", "partial_rotary_factor", ErrorCode::kUnsupported},
      {R"("rope_parameters":{"sliding_attention":{}})", "rope_parameters", ErrorCode::kFormat},
  };
  for (const Case& c : cases) {
    const auto e = catch_error([&] { write(c.settings); });
    EXPECT_EQ(e.code, c.code) << c.settings << ": " << e.message;
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json: "), HasSubstr(c.key))) << c.settings;
  }
}

std::vector<float> llama3(const std::string& rope, int64_t head_dim) {
  const HfConfig config = config_of("\"rope_theta\":500000.0,\"rope_scaling\":" + rope);
  return llama3_rope_factors(config, read_hf_rope(config, "full_attention", 10000.0), head_dim);
}

TEST(HfRopeTest, Llama3FactorsOfThe1B) {
  const auto f = llama3(R"({"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,)"
                        R"("high_freq_factor":4.0,"original_max_position_embeddings":8192})",
                        64);
  ASSERT_EQ(f.size(), 32u);
  for (size_t j = 0; j < 15; ++j)
    EXPECT_EQ(f[j], 1.0F) << j;
  EXPECT_NEAR(f[15], 1.651329, 1e-5);
  EXPECT_NEAR(f[16], 3.292262, 1e-5);
  EXPECT_NEAR(f[17], 9.666729, 1e-5);
  for (size_t j = 18; j < 32; ++j)
    EXPECT_EQ(f[j], 32.0F) << j;
}

TEST(HfRopeTest, Llama3FactorsOfThe8B) {
  const auto f = llama3(R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,)"
                        R"("high_freq_factor":4.0,"original_max_position_embeddings":8192})",
                        128);
  ASSERT_EQ(f.size(), 64u);
  EXPECT_EQ(f[28], 1.0F);
  const double expected[] = {1.207484, 1.553415, 2.026313, 2.694530, 3.684253, 5.257327, 8.0};
  for (size_t j = 0; j < std::size(expected); ++j)
    EXPECT_NEAR(f[29 + j], expected[j], 1e-5) << j;
  EXPECT_EQ(f[63], 8.0F);
}

TEST(HfRopeTest, Llama3FactorsAreNeverGuessed) {
  const nlohmann::json whole = {{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 8192}};
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    nlohmann::json part = whole;
    part.erase(key);
    const auto e = catch_error([&] { llama3(part.dump(), 64); });
    EXPECT_EQ(e.code, ErrorCode::kFormat);
    EXPECT_THAT(e.message, AllOf(HasSubstr("config.json: rope_scaling."), HasSubstr(key)));
  }
}

TEST(HfRopeTest, Llama3FactorsThatContradictAreRefused) {
  const auto e = catch_error([] {
    llama3(R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,)"
           R"("original_max_position_embeddings":8192})",
           64);
  });
  EXPECT_EQ(e.code, ErrorCode::kFormat);
  EXPECT_THAT(e.message, HasSubstr("high_freq_factor"));
}

}  // namespace
}  // namespace ts
