/// exp and log from exactly rounded operations alone, so that every machine gets the same bits: the
/// C library's versions may differ in the last place, and a sampled token must not depend on that.
/// Both stay within 2 units in the last place of the true value (measured over the sampler's
/// range).
#pragma once

#include <cmath>
#include <limits>

namespace ts::portable {

/// e^x. exp(-inf) = 0; results below the smallest normal double are flushed to 0; x <= 709.
inline double exp(double x) noexcept {
  if (!(x > -708.0)) return 0.0;
  constexpr double kLog2E = 1.4426950408889634;
  // ln 2 in two parts; k * kLn2High is exact for |k| < 2^20.
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  const double k = std::floor(x * kLog2E + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= 0.35
  // Taylor series to degree 13: the first term left out is below 5e-18 of the result.
  double sum = 1.0 / 6227020800.0;
  constexpr double kInverseFactorial[] = {1.0 / 479001600.0,
                                          1.0 / 39916800.0,
                                          1.0 / 3628800.0,
                                          1.0 / 362880.0,
                                          1.0 / 40320.0,
                                          1.0 / 5040.0,
                                          1.0 / 720.0,
                                          1.0 / 120.0,
                                          1.0 / 24.0,
                                          1.0 / 6.0,
                                          0.5,
                                          1.0,
                                          1.0};
  for (const double c : kInverseFactorial)
    sum = sum * r + c;
  return std::ldexp(sum, static_cast<int>(k));
}

/// Natural logarithm of a positive finite x; log(0) = -inf.
inline double log(double x) noexcept {
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // [0.5, 1)
  if (m < 0.70710678118654752) {
    m *= 2.0;
    --exponent;
  }
  // log m = 2 artanh(s), s = (m-1)/(m+1), |s| <= 0.172: s^25/25 is below 1e-20.
  const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
  double sum = 0.0;
  for (int d = 23; d >= 3; d -= 2)
    sum = (sum + 1.0 / d) * s2;
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;
  return exponent * kLn2High + (2.0 * (s + s * sum) + exponent * kLn2Low);
}

}  // namespace ts::portable
