/// Roundings of the encoders, written without library calls so that loops over them vectorize.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace ts {

/// Nearest integer, halves away from zero, clamped to [lo, hi]; |lo|, |hi| < 2^22. NaN gives lo.
inline int round_half_away(float v, int lo, int hi) noexcept {
  const float flo = static_cast<float>(lo);
  const float fhi = static_cast<float>(hi);
  v = v >= flo ? v : flo;
  v = v <= fhi ? v : fhi;
  const int whole = static_cast<int>(v);
  const float rest = v - static_cast<float>(whole);  // exact, same sign as v
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

/// Nearest integer, halves to even, clamped to [lo, hi]; |lo|, |hi| < 2^22. NaN gives lo.
inline int round_half_even(float v, int lo, int hi) noexcept {
  const float flo = static_cast<float>(lo);
  const float fhi = static_cast<float>(hi);
  v = v >= flo ? v : flo;
  v = v <= fhi ? v : fhi;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the sum has no fraction bits left
  return static_cast<int>((v + kMagic) - kMagic);
}

/// trunc(v), clamped to [0, hi]. NaN gives 0.
inline int truncate_clamped(float v, int hi) noexcept {
  const float fhi = static_cast<float>(hi);
  v = v >= 0.0f ? v : 0.0f;
  v = v <= fhi ? v : fhi;
  return static_cast<int>(v);
}

/// 1/d, or 0 where that is not a finite number (d zero, or so small that it stores as zero).
inline float reciprocal_or_zero(float d) noexcept {
  const float id = 1.0f / d;
  return std::isfinite(id) ? id : 0.0f;
}

/// Largest |x|; NaNs are passed over.
inline float abs_max(const float* x, size_t n) noexcept {
  float best = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    best = a > best ? a : best;
  }
  return best;
}

/// The signed value of largest magnitude, the first one on ties (Q4_0, Q5_0).
inline float signed_abs_max(const float* x, size_t n) noexcept {
  float best = 0.0f;
  float value = 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    if (a > best) {
      best = a;
      value = x[i];
    }
  }
  return value;
}

}  // namespace ts
