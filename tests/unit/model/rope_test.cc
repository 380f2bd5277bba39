// Rotary frequencies and their scalings.
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include <tensorsharp/error.hpp>

#include "backend/cpu/cpu_backend.h"
#include "format/metadata.h"
#include "model/config.h"
#include "model/rope_config.h"

namespace ts {
namespace {

std::vector<float> rotate(const RopeParams& params, std::vector<float> x, int64_t position) {
  CpuBackendOptions options;
  options.n_threads = 1;
  const auto backend = make_cpu_backend(options);
  const auto buffer = backend->allocate(x.size(), "test");
  const auto width = static_cast<int64_t>(x.size());
  const Mat mat{buffer.get(), 0, 1, width, width};
  std::copy(x.begin(), x.end(), mat.row(0));
  backend->rope(mat, 1, width, position, make_rope(params));
  std::copy(mat.row(0), mat.row(0) + width, x.begin());
  return x;
}

TEST(Rope, PairingsOfTheTwoFamilies) {
  RopeParams p;
  p.n_rot = 4;
  p.half_split = true;
  const auto split = rotate(p, {1, 2, 3, 4}, 1);
  const std::vector<double> want_split = {-1.98411065, 1.95990067, 2.46237790, 4.01979967};
  p.half_split = false;
  const auto pairs = rotate(p, {1, 2, 3, 4}, 1);
  const std::vector<double> want_pairs = {-1.14263966, 1.92207560, 2.95985067, 4.02979950};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(split[i], want_split[i], 1e-6);
    EXPECT_NEAR(pairs[i], want_pairs[i], 1e-6);
  }
}

TEST(Rope, PositionZeroAndElementsPastTheRotatedOnesAreUnchanged) {
  RopeParams p;
  p.n_rot = 2;
  p.half_split = true;
  EXPECT_EQ(rotate(p, {1, 2, 3, 4}, 0), (std::vector<float>{1, 2, 3, 4}));
  const auto turned = rotate(p, {1, 2, 3, 4}, 7);
  EXPECT_NEAR(turned[0], std::cos(7.0) - 2 * std::sin(7.0), 1e-6);
  EXPECT_EQ(turned[2], 3.0F);
  EXPECT_EQ(turned[3], 4.0F);
}

TEST(Rope, LinearScalingDividesEveryFrequency) {
  RopeParams p;
  p.n_rot = 8;
  const Rope plain = make_rope(p);
  p.scaling = RopeScaling::kLinear;
  p.factor = 8;
  const Rope scaled = make_rope(p);
  for (size_t j = 0; j < 4; ++j)
    EXPECT_DOUBLE_EQ(scaled.inverse_frequency[j] * 8, plain.inverse_frequency[j]);
  EXPECT_EQ(scaled.scale, 1.0F);
}

TEST(Rope, FrequencyFactorsDivide) {
  RopeParams p;
  p.n_rot = 4;
  const std::vector<float> factors = {2.0F, 5.0F};
  const Rope rope = make_rope(p, factors);
  EXPECT_DOUBLE_EQ(rope.inverse_frequency[0], 0.5);
  EXPECT_DOUBLE_EQ(rope.inverse_frequency[1], 0.01 / 5.0);
}

// The scaling of an 8B model: factor 4 over 16384 positions, base 1e6, heads of 128.
TEST(Rope, YarnBlendsBetweenTwoPairs) {
  RopeParams p;
  p.n_rot = 128;
  p.base = 1e6;
  p.scaling = RopeScaling::kYarn;
  p.factor = 4;
  p.original_context = 16384;
  const Rope rope = make_rope(p);
  EXPECT_FLOAT_EQ(rope.scale, static_cast<float>(1.0 + 0.1 * std::log(4.0)));
  const auto plain = [](size_t j) { return std::pow(1e6, -2.0 * static_cast<double>(j) / 128.0); };
  const auto turns_at = [](double turns) {
    return 128.0 * std::log(16384.0 / (turns * 2 * std::numbers::pi)) / (2 * std::log(1e6));
  };
  const double low = std::floor(turns_at(32)), high = std::ceil(turns_at(1));
  ASSERT_EQ(low, 20);
  ASSERT_EQ(high, 37);
  for (size_t j = 0; j < 64; ++j) {
    const double f = rope.inverse_frequency[j];
    if (static_cast<double>(j) <= low) {
      EXPECT_DOUBLE_EQ(f, plain(j)) << j;
    } else if (static_cast<double>(j) >= high) {
      EXPECT_DOUBLE_EQ(f, plain(j) / 4) << j;
    } else {
      EXPECT_LT(f, plain(j)) << j;
      EXPECT_GT(f, plain(j) / 4) << j;
    }
  }
  // Half-way between: (28.5 - 20) / 17 = 1/2, so pairs 28 and 29 lie around 5/8 of the frequency.
  EXPECT_NEAR(rope.inverse_frequency[28] / plain(28), 1 - 0.75 * 8 / 17, 1e-12);
}

RopeParams read(const std::vector<std::pair<std::string, MetadataValue>>& pairs) {
  Metadata md("f.gguf");
  for (const auto& [key, value] : pairs)
    md.set("llama." + key, value);
  return read_rope_params(ConfigReader(md, "llama"), 64, 4096);
}

TEST(RopeKeys, DefaultsAndScalings) {
  const RopeParams none = read({});
  EXPECT_EQ(none.n_rot, 64);
  EXPECT_EQ(none.base, 10000.0);
  EXPECT_EQ(none.scaling, RopeScaling::kNone);
  const RopeParams old = read({{"rope.scale_linear", MetadataValue::f32(4)}});
  EXPECT_EQ(old.scaling, RopeScaling::kLinear);
  EXPECT_EQ(old.factor, 4.0);
  const RopeParams yarn = read({{"rope.scaling.type", MetadataValue::string("yarn")},
                                {"rope.scaling.factor", MetadataValue::f32(4)}});
  EXPECT_EQ(yarn.original_context, 4096);
  EXPECT_EQ(yarn.beta_fast, 32.0);
  const RopeParams off = read({{"rope.scaling.type", MetadataValue::string("none")},
                               {"rope.scaling.factor", MetadataValue::f32(4)}});
  EXPECT_EQ(off.scaling, RopeScaling::kNone);
}

TEST(RopeKeys, BadValuesAreNamed) {
  const auto message = [](const std::vector<std::pair<std::string, MetadataValue>>& pairs) {
    try {
      read(pairs);
    } catch (const Error& error) {
      return std::string(error.kind().name) + " " + error.what();
    }
    return std::string("no error");
  };
  EXPECT_NE(message({{"rope.scaling.type", MetadataValue::string("longrope")}}).find("longrope"),
            std::string::npos);
  for (const auto& [key, value] : std::vector<std::pair<std::string, MetadataValue>>{
           {"rope.dimension_count", MetadataValue::u32(63)},
           {"rope.dimension_count", MetadataValue::u32(0)},
           {"rope.dimension_count", MetadataValue::u32(128)},
           {"rope.freq_base", MetadataValue::f32(0)},
           {"rope.freq_base", MetadataValue::f32(1)},
           {"rope.freq_base", MetadataValue::f32(-5)},
           {"rope.scaling.factor", MetadataValue::f32(-1)},
           {"rope.freq_base", MetadataValue::string("big")}}) {
    const std::string text = message({{key, value}});
    EXPECT_TRUE(text.starts_with("format_error")) << text;
    EXPECT_NE(text.find("f.gguf"), std::string::npos) << text;
    EXPECT_NE(text.find("llama." + key), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace ts
