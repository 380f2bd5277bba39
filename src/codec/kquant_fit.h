/// Fitting of the two-level scales of the K formats: 256 weights in sub-blocks, each with a small
/// integer scale (and minimum), under one f16 scale (and minimum scale) for the super-block.
///
/// The formats fix how to read a block, not how to find one. We minimise the plain squared error:
///  1. each sub-block alone: several trial scales around the one that spans its range, codes by
///     rounding, then the least-squares scale (and minimum) for those codes; the best trial stays;
///  2. the sub-block scales are rounded to integers under a common f16 scale;
///  3. each sub-block tries the neighbouring integers with the scales as stored and keeps the best;
///  4. the f16 scales are solved again by least squares for the integers and codes found, and step
///  3
///     is repeated; the better of both rounds is kept.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ts {

inline constexpr size_t kSuperElems = 256;
inline constexpr size_t kMaxSubBlocks = 16;

/// value = (d * scale[k]) * code - (dmin * min[k]), k the sub-block of the element. All integers
/// are non-negative; d and dmin are f16 bits.
struct AffineSuperBlock {
  uint16_t d = 0;
  uint16_t dmin = 0;
  std::array<uint8_t, kMaxSubBlocks> scale{};
  std::array<uint8_t, kMaxSubBlocks> min{};
  std::array<uint8_t, kSuperElems> code{};
};

/// value = (d * scale[k]) * code, both signed.
struct SymmetricSuperBlock {
  uint16_t d = 0;
  std::array<int8_t, kMaxSubBlocks> scale{};
  std::array<int8_t, kSuperElems> code{};
};

struct AffineLimits {
  size_t sub_elems;  ///< 16 or 32
  int max_code;      ///< codes 0..max_code
  int max_scale;     ///< scales and minima 0..max_scale
};

struct SymmetricLimits {
  size_t sub_elems;
  int min_code;   ///< codes min_code..-min_code-1
  int min_scale;  ///< scales min_scale..-min_scale-1
};

/// x: kSuperElems finite values.
AffineSuperBlock fit_affine(const float* x, const AffineLimits& limits) noexcept;
SymmetricSuperBlock fit_symmetric(const float* x, const SymmetricLimits& limits) noexcept;

}  // namespace ts
