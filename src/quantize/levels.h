/// The values a weight can take in one group: all sums of +-scale or 0 over the planes.
#pragma once

#include <cstdint>

#include "quantize/ternary_options.h"

namespace ts {

inline constexpr int kMaxLevels = 14;  // (3^3 + 1) / 2, from 0 upwards; the negative ones mirror
inline constexpr int kMaxStates = 8;   // which planes are nonzero

struct Level {
  float value;              ///< >= 0
  int8_t code[kMaxPlanes];  ///< of each plane, for +value
  uint8_t state;            ///< bit p: code[p] is not 0
};

class Levels {
 public:
  /// scales [n_planes], each >= 0.
  void set(const float* scales, int n_planes) noexcept;

  /// The nearest level to |x|; the smaller one on a tie.
  const Level& nearest(float magnitude) const noexcept {
    int i = 0;
    for (int k = 0; k + 1 < n_distinct_; ++k)
      i += magnitude > middle_[k];
    return distinct_[i];
  }

  /// The level (with its sign) next above or below `value`, which is one; itself at the end.
  float next(float value, bool up) const noexcept {
    const float magnitude = value < 0 ? -value : value;
    const auto i = static_cast<int>(&nearest(magnitude) - distinct_);
    if (i == 0) return n_distinct_ < 2 ? value : up ? distinct_[1].value : -distinct_[1].value;
    const bool outwards = (value > 0) == up;
    if (outwards && i + 1 == n_distinct_) return value;
    const float to = distinct_[outwards ? i + 1 : i - 1].value;
    return value < 0 ? -to : to;
  }

  int n_all() const noexcept { return n_all_; }
  const Level& all(int i) const noexcept { return all_[i]; }

 private:
  int n_all_ = 0, n_distinct_ = 0;
  Level all_[kMaxLevels];       // one per pair of codes and opposite codes
  Level distinct_[kMaxLevels];  // ascending, of equal values the one with the fewest nonzero codes
  float middle_[kMaxLevels];
};

/// The choice of codes for 4 neighbouring weights under a Sparsity.
class BlockOfFour {
 public:
  BlockOfFour(const Sparsity& sparsity, int n_planes) noexcept;

  /// For each of the four weights the planes that are to be nonzero (a state), so that
  /// sum_i h_i (w_i - value_i)^2 is least; h null = 1.
  void choose(const float* w, const float* h, const Levels& levels, uint8_t* states) const noexcept;

  /// Supports allowed in one plane, as sets of positions.
  int n_supports() const noexcept { return n_supports_; }
  uint8_t support(int i) const noexcept { return supports_[i]; }

 private:
  int n_planes_;
  int n_supports_ = 0;
  uint8_t supports_[16];
};

/// The nearest level to `magnitude` among those with exactly these planes nonzero.
inline const Level& nearest_of_state(const Levels& levels, float magnitude,
                                     uint8_t state) noexcept {
  const Level* best = nullptr;
  float best_distance = 0;
  for (int i = 0; i < levels.n_all(); ++i) {
    const Level& level = levels.all(i);
    if (level.state != state) continue;
    const float distance =
        magnitude > level.value ? magnitude - level.value : level.value - magnitude;
    if (!best || distance < best_distance) {
      best = &level;
      best_distance = distance;
    }
  }
  return *best;  // every state has a level
}

}  // namespace ts
