#include "codec/kquant_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.h"
#include "codec/rounding.h"

namespace ts {
namespace {

constexpr size_t kMaxSubElems = 32;
constexpr float kHuge = std::numeric_limits<float>::max();

/// f16 bits of a super-block scale: to nearest, but away from zero where f16 is subnormal. There a
/// scale rounded down, or to zero, would clip the integers below it by up to all of their range.
uint16_t super_scale_bits(float scale) noexcept {
  const uint16_t bits = float_to_half(scale);
  const float magnitude = std::fabs(scale);
  const bool short_of_it = std::fabs(half_to_float(bits)) < magnitude;
  return static_cast<uint16_t>(bits + (magnitude < 0x1p-14f && short_of_it ? 1 : 0));
}

/// Sum of term(i) for i = 0..n-1, n a multiple of 8, in eight partial sums that vectorize.
template <class Term>
float sum_in_lanes(size_t n, Term term) noexcept {
  float lanes[8] = {};
  for (size_t i = 0; i < n; i += 8) {
    for (size_t j = 0; j < 8; ++j)
      lanes[j] += term(i + j);
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// ---- symmetric ----------------------------------------------------------------------------------

/// The real scale s that lets s * code come closest to the n values of x.
float symmetric_scale(const float* x, size_t n, int min_code) noexcept {
  const float extreme = signed_abs_max(x, n);
  if (extreme == 0.0f) return 0.0f;
  float best_gain = 0.0f;
  float best_scale = 0.0f;
  // Trials in fifths of a code around the scale that maps the extreme to min_code.
  for (int step = -8; step <= 8; step += 2) {
    const float inverse =
        (static_cast<float>(min_code) + 0.1f * static_cast<float>(step)) / extreme;
    if (!std::isfinite(inverse)) return 0.0f;
    float code[kMaxSubElems];
    for (size_t i = 0; i < n; ++i)
      code[i] = static_cast<float>(round_half_even(inverse * x[i], min_code, -min_code - 1));
    const float xq = sum_in_lanes(n, [&](size_t i) { return x[i] * code[i]; });
    const float qq = sum_in_lanes(n, [&](size_t i) { return code[i] * code[i]; });
    // With the least-squares scale xq / qq the squared error falls by xq^2 / qq.
    if (qq > 0.0f && xq * xq > best_gain * qq) {
      best_gain = xq * xq / qq;
      best_scale = xq / qq;
    }
  }
  return best_scale;
}

float symmetric_error(const float* x, size_t n, float scale, int min_code) noexcept {
  const float inverse = reciprocal_or_zero(scale);
  return sum_in_lanes(n, [&](size_t i) {
    const int q = round_half_even(inverse * x[i], min_code, -min_code - 1);
    const float miss = scale * static_cast<float>(q) - x[i];
    return miss * miss;
  });
}

/// Step 3: integers near wanted[k] / d and the codes for them. Returns the squared error.
float settle_symmetric(const float* x, const SymmetricLimits& limits, const float* wanted,
                       SymmetricSuperBlock& out) noexcept {
  const float d = half_to_float(out.d);
  const float id = reciprocal_or_zero(d);
  float total = 0.0f;
  for (size_t k = 0; k < kSuperElems / limits.sub_elems; ++k) {
    const float* sub = x + k * limits.sub_elems;
    const int centre = round_half_even(wanted[k] * id, limits.min_scale, -limits.min_scale - 1);
    float best = kHuge;
    int best_scale = centre;
    for (int s = std::max(centre - 1, limits.min_scale);
         s <= std::min(centre + 1, -limits.min_scale - 1); ++s) {
      const float error =
          symmetric_error(sub, limits.sub_elems, d * static_cast<float>(s), limits.min_code);
      if (error < best) {
        best = error;
        best_scale = s;
      }
    }
    total += best;
    out.scale[k] = static_cast<int8_t>(best_scale);
    const float inverse = reciprocal_or_zero(d * static_cast<float>(best_scale));
    for (size_t i = 0; i < limits.sub_elems; ++i)
      out.code[k * limits.sub_elems + i] = static_cast<int8_t>(
          round_half_even(inverse * sub[i], limits.min_code, -limits.min_code - 1));
  }
  return total;
}

// ---- affine -------------------------------------------------------------------------------------

/// x is about scale * code - min; both non-negative.
struct AffineFit {
  float scale = 0.0f;
  float min = 0.0f;
};

int affine_code(float x, float min, float inverse, int max_code) noexcept {
  return round_half_even((x + min) * inverse, 0, max_code);
}

float affine_error(const float* x, size_t n, AffineFit fit, int max_code) noexcept {
  const float inverse = reciprocal_or_zero(fit.scale);
  return sum_in_lanes(n, [&](size_t i) {
    const int q = affine_code(x[i], fit.min, inverse, max_code);
    const float miss = fit.scale * static_cast<float>(q) - fit.min - x[i];
    return miss * miss;
  });
}

/// The least-squares scale and minimum for the codes that `trial` gives, both kept non-negative.
AffineFit refit(const float* x, size_t n, AffineFit trial, int max_code) noexcept {
  const float inverse = reciprocal_or_zero(trial.scale);
  float code[kMaxSubElems];
  for (size_t i = 0; i < n; ++i)
    code[i] = static_cast<float>(affine_code(x[i], trial.min, inverse, max_code));
  const float q1 = sum_in_lanes(n, [&](size_t i) { return code[i]; });
  const float qq = sum_in_lanes(n, [&](size_t i) { return code[i] * code[i]; });
  const float x1 = sum_in_lanes(n, [&](size_t i) { return x[i]; });
  const float xq = sum_in_lanes(n, [&](size_t i) { return x[i] * code[i]; });
  const auto count = static_cast<float>(n);
  const float determinant = count * qq - q1 * q1;
  if (!(determinant > 0.0f)) return trial;
  AffineFit fit{(count * xq - q1 * x1) / determinant, (q1 * xq - qq * x1) / determinant};
  if (fit.min < 0.0f) fit = {xq / qq, 0.0f};
  return fit.scale > 0.0f ? fit : trial;
}

AffineFit affine_sub_block(const float* x, size_t n, int max_code) noexcept {
  float low = 0.0f;  // the minimum is stored as a non-negative amount to subtract
  float high = x[0];
  for (size_t i = 0; i < n; ++i) {
    low = std::min(low, x[i]);
    high = std::max(high, x[i]);
  }
  if (!(high > low)) return {0.0f, -low};  // all equal and not positive
  AffineFit best{};
  float best_error = kHuge;
  // Trials in fifths of a code around the scale that spans the range.
  for (int step = -10; step <= 14; step += 2) {
    const float steps = static_cast<float>(max_code) + 0.1f * static_cast<float>(step);
    const AffineFit trial{(high - low) / steps, -low};
    const AffineFit fit = refit(x, n, trial, max_code);
    const float error = affine_error(x, n, fit, max_code);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  }
  return best;
}

/// Step 3 for one sub-block: the best pair of integers next to the wanted scale and minimum.
float settle_affine_sub_block(const float* sub, const AffineLimits& limits, AffineFit wanted,
                              AffineFit unit, uint8_t& scale, uint8_t& min) noexcept {
  const int s0 =
      round_half_even(wanted.scale * reciprocal_or_zero(unit.scale), 0, limits.max_scale);
  const int m0 = round_half_even(wanted.min * reciprocal_or_zero(unit.min), 0, limits.max_scale);
  float best = kHuge;
  scale = static_cast<uint8_t>(s0);
  min = static_cast<uint8_t>(m0);
  for (int s = std::max(s0 - 1, 0); s <= std::min(s0 + 1, limits.max_scale); ++s) {
    for (int m = std::max(m0 - 1, 0); m <= std::min(m0 + 1, limits.max_scale); ++m) {
      const AffineFit fit{unit.scale * static_cast<float>(s), unit.min * static_cast<float>(m)};
      const float error = affine_error(sub, limits.sub_elems, fit, limits.max_code);
      if (error < best) {
        best = error;
        scale = static_cast<uint8_t>(s);
        min = static_cast<uint8_t>(m);
      }
    }
  }
  return best;
}

float settle_affine(const float* x, const AffineLimits& limits, const AffineFit* wanted,
                    AffineSuperBlock& out) noexcept {
  const AffineFit unit{half_to_float(out.d), half_to_float(out.dmin)};
  float total = 0.0f;
  for (size_t k = 0; k < kSuperElems / limits.sub_elems; ++k) {
    const float* sub = x + k * limits.sub_elems;
    total += settle_affine_sub_block(sub, limits, wanted[k], unit, out.scale[k], out.min[k]);
    const float inverse = reciprocal_or_zero(unit.scale * static_cast<float>(out.scale[k]));
    const float min = unit.min * static_cast<float>(out.min[k]);
    for (size_t i = 0; i < limits.sub_elems; ++i)
      out.code[k * limits.sub_elems + i] =
          static_cast<uint8_t>(affine_code(sub[i], min, inverse, limits.max_code));
  }
  return total;
}

/// Step 4: least squares for d and dmin over x ~ d * (scale * code) - dmin * min.
AffineFit resolve_affine(const float* x, const AffineLimits& limits,
                         const AffineSuperBlock& s) noexcept {
  double aa = 0.0;
  double ab = 0.0;
  double bb = 0.0;
  double ax = 0.0;
  double bx = 0.0;
  for (size_t e = 0; e < kSuperElems; ++e) {
    const size_t k = e / limits.sub_elems;
    const double a = s.scale[k] * s.code[e];
    const double b = -static_cast<double>(s.min[k]);
    aa += a * a;
    ab += a * b;
    bb += b * b;
    ax += a * static_cast<double>(x[e]);
    bx += b * static_cast<double>(x[e]);
  }
  const double determinant = aa * bb - ab * ab;
  const AffineFit stored{half_to_float(s.d), half_to_float(s.dmin)};
  if (!(determinant > 1e-9 * aa * bb)) {
    return aa > 0.0 && bb == 0.0 ? AffineFit{static_cast<float>(ax / aa), 0.0f} : stored;
  }
  const double d = (ax * bb - bx * ab) / determinant;
  const double dmin = (bx * aa - ax * ab) / determinant;
  return d > 0.0 && dmin >= 0.0 ? AffineFit{static_cast<float>(d), static_cast<float>(dmin)}
                                : stored;
}

}  // namespace

SymmetricSuperBlock fit_symmetric(const float* x, const SymmetricLimits& limits) noexcept {
  std::array<float, kMaxSubBlocks> wanted{};
  const size_t n_sub = kSuperElems / limits.sub_elems;
  for (size_t k = 0; k < n_sub; ++k)
    wanted[k] = symmetric_scale(x + k * limits.sub_elems, limits.sub_elems, limits.min_code);
  // The largest scale takes the longer, negative side of the integers.
  const float extreme = signed_abs_max(wanted.data(), n_sub);
  SymmetricSuperBlock first;
  first.d = super_scale_bits(extreme / static_cast<float>(limits.min_scale));
  const float first_error = settle_symmetric(x, limits, wanted.data(), first);

  double aa = 0.0;
  double ax = 0.0;
  for (size_t e = 0; e < kSuperElems; ++e) {
    const double a = first.scale[e / limits.sub_elems] * first.code[e];
    aa += a * a;
    ax += a * static_cast<double>(x[e]);
  }
  if (!(aa > 0.0)) return first;
  SymmetricSuperBlock second;
  second.d = super_scale_bits(static_cast<float>(ax / aa));
  const float second_error = settle_symmetric(x, limits, wanted.data(), second);
  return second_error < first_error ? second : first;
}

AffineSuperBlock fit_affine(const float* x, const AffineLimits& limits) noexcept {
  std::array<AffineFit, kMaxSubBlocks> wanted{};
  const size_t n_sub = kSuperElems / limits.sub_elems;
  AffineFit largest{};
  for (size_t k = 0; k < n_sub; ++k) {
    wanted[k] = affine_sub_block(x + k * limits.sub_elems, limits.sub_elems, limits.max_code);
    largest.scale = std::max(largest.scale, wanted[k].scale);
    largest.min = std::max(largest.min, wanted[k].min);
  }
  AffineSuperBlock first;
  first.d = super_scale_bits(largest.scale / static_cast<float>(limits.max_scale));
  first.dmin = super_scale_bits(largest.min / static_cast<float>(limits.max_scale));
  const float first_error = settle_affine(x, limits, wanted.data(), first);

  const AffineFit unit = resolve_affine(x, limits, first);
  AffineSuperBlock second;
  second.d = super_scale_bits(unit.scale);
  second.dmin = super_scale_bits(unit.min);
  const float second_error = settle_affine(x, limits, wanted.data(), second);
  return second_error < first_error ? second : first;
}

}  // namespace ts
