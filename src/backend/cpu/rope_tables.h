/// Cosines and sines of rotary embeddings, computed in double and kept for the positions in use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/backend.h"

namespace ts {

class RopeTables {
 public:
  struct View {
    const float* cos;  ///< [n_positions, n_pairs], from the asked first position on
    const float* sin;
    size_t n_pairs;
  };
  /// Values for positions [first, first + count). Valid until the next call.
  View get(const Rope& rope, int64_t first, int64_t count);

 private:
  struct Entry {
    std::vector<double> inverse_frequency;
    float scale = 1.0F;
    int64_t first = 0, count = 0;
    std::vector<float> cos, sin;
  };
  std::vector<Entry> entries_;
};

}  // namespace ts
