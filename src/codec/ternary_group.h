/// What the ternary formats share: the scale of a group, the code of a value, and the inspection of
/// one group. Source of the encode rule: the public container format (scale = largest magnitude),
/// which is exact for data that already is ternary and nothing more; fitting is the quantizer's
/// job.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "codec/block_finding.h"
#include "codec/rounding.h"

namespace ts {

/// The encode rule of one group: scale d = max|x|, code = lround(x/d) in {-1, 0, 1}.
struct TernaryScale {
  float scale;
  float inverse;

  static TernaryScale of(const float* x, size_t n) noexcept {
    const float d = abs_max(x, n);
    return {d, reciprocal_or_zero(d)};
  }
  /// lround(x * inverse) for |x| <= scale, which makes |x * inverse| < 1.5: two comparisons.
  int code(float x) const noexcept {
    const float v = x * inverse;
    return (v >= 0.5f ? 1 : 0) - (v <= -0.5f ? 1 : 0);
  }
};

/// Findings of one group, from its scale and what its codes hold.
inline uint32_t inspect_ternary_group(uint16_t scale_bits, bool any_nonzero_code,
                                      bool any_plus_two) noexcept {
  uint32_t found = kFindingNone;
  const bool zero_scale = (scale_bits & 0x7FFFu) == 0;
  if ((scale_bits & 0x7C00u) == 0x7C00u) found |= kFindingNonFiniteScale;
  if ((scale_bits & 0x8000u) != 0 && !zero_scale) found |= kFindingNegativeScale;
  if (!zero_scale && !any_nonzero_code) found |= kFindingScaleOnZeros;
  if (zero_scale && any_nonzero_code) found |= kFindingCodesOnZeroScale;
  if (any_plus_two) found |= kFindingCodePlusTwo;
  if (scale_bits == 0x8000u) found |= kFindingNotCanonical;  // zero is written without a sign
  return found;
}

/// Inspection of a group stored as 2-bit fields, in whatever order; the field 01 is the code 0.
inline uint32_t inspect_two_bit_group(uint16_t scale_bits, const uint8_t* qs,
                                      size_t n_bytes) noexcept {
  unsigned any_nonzero = 0;
  unsigned any_three = 0;
  for (size_t i = 0; i < n_bytes; ++i) {
    any_nonzero |= qs[i] ^ 0x55u;
    any_three |= qs[i] & (static_cast<unsigned>(qs[i]) >> 1) & 0x55u;
  }
  return inspect_ternary_group(scale_bits, any_nonzero != 0, any_three != 0);
}

}  // namespace ts
