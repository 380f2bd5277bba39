#include "base/int8_peak.h"

#include <gtest/gtest.h>

#include "base/cpu_features.h"

namespace ts {
namespace {

TEST(Int8Peak, IsKnownForInstructionSetsWithSuchProducts) {
  EXPECT_FALSE(Int8PeakMeter(1, "ref").known());
  if (!cpu_features().avx2) GTEST_SKIP() << "no AVX2";
  Int8PeakMeter meter(1, "avx2");
  ASSERT_TRUE(meter.known());
  // Between a thousandth of and ten times what current processors do: 64 to 128 per cycle.
  for (int i = 0; i < 2; ++i) {
    const double rate = meter.pass(0.002);
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 5e12);
  }
}

}  // namespace
}  // namespace ts
