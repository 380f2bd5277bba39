/// Which matrices get further planes when a model may have so many bits and no more.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ts {

struct PlaneChoice {
  /// Harm done with 1, 2, ... planes, in a measure that adds up over matrices; not increasing.
  std::vector<double> harm;
  uint64_t plane_bytes = 0;  ///< of one plane
  int n_planes = 1;          ///< the answer
};

/// Starts with one plane everywhere and takes the step that removes most harm per byte until none
/// fits into `bytes` (of all planes) any more. Steps that pay only together are taken together: the
/// lower convex hull of harm over bytes decides. Equal steps are taken in order.
void spend_budget(std::span<PlaneChoice> choices, uint64_t bytes);

}  // namespace ts
