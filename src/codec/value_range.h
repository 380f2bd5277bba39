/// Smallest and largest value of a block, for the formats with a scale and a minimum.
#pragma once

#include <cstddef>

namespace ts {

struct ValueRange {
  float low;
  float high;

  /// n >= 1; a NaN never becomes a bound unless it comes first.
  static ValueRange of(const float* x, size_t n) noexcept {
    ValueRange r{x[0], x[0]};
    for (size_t i = 1; i < n; ++i) {
      r.low = x[i] < r.low ? x[i] : r.low;
      r.high = x[i] > r.high ? x[i] : r.high;
    }
    return r;
  }
};

}  // namespace ts
