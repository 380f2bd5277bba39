#include "cli/plain_transforms.h"

#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

namespace ts::cli {
namespace {

std::vector<float> some_values(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i)
    x[i] = static_cast<float>((i * i * 7 + 3 * i + 1) % 23) - 11;
  return x;
}

TEST(PlainTransforms, AreThoseOfTheDefinition) {
  for (const size_t n : {size_t{4}, size_t{8}, size_t{64}, size_t{512}}) {
    const std::vector<float> x = some_values(n);
    PlainTransforms transforms(n);
    std::vector<float> real(n / 2 + 1), imaginary(n / 2 + 1), cosine(n);
    // Twice: nothing of the first call may be left in the second.
    for (int round = 0; round < 2; ++round) {
      transforms.fourier(x.data(), real.data(), imaginary.data());
      transforms.cosine(x.data(), cosine.data());
    }
    const double tolerance = 1e-4 * static_cast<double>(n);
    for (size_t k = 0; k < n; ++k) {
      double re = 0, im = 0, co = 0;
      for (size_t i = 0; i < n; ++i) {
        const double angle =
            2 * std::numbers::pi * static_cast<double>(i * k % n) / static_cast<double>(n);
        re += x[i] * std::cos(angle);
        im -= x[i] * std::sin(angle);
        co += x[i] * std::cos(std::numbers::pi * static_cast<double>((2 * i + 1) * k) /
                              static_cast<double>(2 * n));
      }
      if (k <= n / 2) {
        EXPECT_NEAR(real[k], re, tolerance) << n << " " << k;
        EXPECT_NEAR(imaginary[k], im, tolerance) << n << " " << k;
      }
      EXPECT_NEAR(cosine[k], co, tolerance) << n << " " << k;
    }
  }
}

}  // namespace
}  // namespace ts::cli
