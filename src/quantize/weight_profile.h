/// What a rotation does to the weights of a matrix, from a sample of its rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "hadamard/rotation.h"

namespace ts {

struct PlannedTensor;

/// Bins of a histogram from -4 to 4 standard deviations; what lies beyond counts in the outer ones.
inline constexpr size_t kHistogramBins = 41;

struct WeightProfile {
  std::array<uint32_t, kHistogramBins> before{}, after{};  ///< equal where nothing is rotated
  /// Signal to noise of the plain least-squares fit with the matrix's planes and groups, in dB.
  double plain_sqnr_before_db = 0, plain_sqnr_after_db = 0;
};

/// Of a matrix that is fitted.
WeightProfile weight_profile(const PlannedTensor& planned, ThreadPool& pool);

/// Mean relative error of that plain fit on the sample, after `rotation` (null = as it is).
double plain_fit_error(const PlannedTensor& planned, const Rotation* rotation, ThreadPool& pool);

}  // namespace ts
