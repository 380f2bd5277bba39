#include "base/half.h"

#include <cmath>

#include <gtest/gtest.h>

namespace ts {
namespace {

TEST(Half, EveryBitPatternSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float value = half_to_float(static_cast<uint16_t>(h));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), h);
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(float_to_half(1.0F / 3.0F), 0x3555);
  EXPECT_EQ(float_to_half(-2.5F), 0xC100);
  EXPECT_EQ(float_to_half(65504.0F), 0x7BFF);
  EXPECT_EQ(float_to_half(65519.996F), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_half(6e-8F), 0x0001);
  EXPECT_EQ(float_to_half(2.9802322e-8F), 0x0000);  // half of the smallest: tie to even
  EXPECT_EQ(float_to_half(std::nextafter(2.9802322e-8F, 1.0F)), 0x0001);
}

#if defined(__aarch64__)
#define TS_TEST_FLOAT16 __fp16
#elif defined(__FLT16_MAX__) && !defined(__clang__)
#define TS_TEST_FLOAT16 _Float16
#endif
#if defined(TS_TEST_FLOAT16)
TEST(Half, AgreesWithTheCompilersFloat16OnRandomBits) {
  uint32_t state = 12345;
  for (int i = 0; i < 2'000'000; ++i) {
    state = state * 1664525u + 1013904223u;
    const float value = std::bit_cast<float>(state);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_half(value), std::bit_cast<uint16_t>(static_cast<TS_TEST_FLOAT16>(value)))
        << value;
  }
}
#endif

TEST(Bf16, KnownValues) {
  EXPECT_EQ(float_to_bf16(1.0F / 3.0F), 0x3EAB);
  EXPECT_EQ(float_to_bf16(-2.5F), 0xC020);
  EXPECT_EQ(float_to_bf16(3.14159274F), 0x4049);
  EXPECT_EQ(float_to_bf16(1.00390625F), 0x3F80);  // tie to even
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
}

}  // namespace
}  // namespace ts
