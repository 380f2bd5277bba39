#include "runtime/portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace ts {
namespace {

int64_t ulps(double a, double b) {
  return std::abs(std::bit_cast<int64_t>(a) - std::bit_cast<int64_t>(b));
}

TEST(PortableMath, ExpIsWithinTwoUlps) {
  int64_t worst = 0;
  for (double x = -707.9; x < 700; x += 0.0137)
    worst = std::max(worst, ulps(portable::exp(x), std::exp(x)));
  EXPECT_LE(worst, 2);
  EXPECT_EQ(portable::exp(0.0), 1.0);
  EXPECT_EQ(portable::exp(-1e300), 0.0);
  EXPECT_EQ(portable::exp(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST(PortableMath, LogIsWithinTwoUlps) {
  int64_t worst = 0;
  for (double x = 1e-300; x < 1e300; x *= 1.0371)
    worst = std::max(worst, ulps(portable::log(x), std::log(x)));
  for (double x = 0.4; x < 2.5; x += 0.00037) {
    if (std::abs(x - 1.0) < 1e-9) continue;
    worst = std::max(worst, ulps(portable::log(x), std::log(x)));
  }
  EXPECT_LE(worst, 2);
  EXPECT_EQ(portable::log(1.0), 0.0);
  EXPECT_EQ(portable::log(0.0), -std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace ts
