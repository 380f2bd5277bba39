/// A matrix as a sum of ternary planes: w[r][c] = sum over planes of scale(r, c / group) * code.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/ternary_options.h"

namespace ts {

struct TernaryPlane {
  int64_t group = 0;
  std::vector<int8_t> codes;  ///< [rows, cols], each -1, 0 or 1
  /// [rows, ceil(cols / group)], each >= 0 and exactly an IEEE binary16; 0 exactly where all codes
  /// of the group are 0.
  std::vector<float> scales;
};

struct TernaryMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<TernaryPlane> planes;

  int64_t n_groups() const noexcept {
    return planes.empty() ? 0 : (cols + planes[0].group - 1) / planes[0].group;
  }
};

/// out [rows, cols] = the sum of the first `n_planes` planes (all when negative).
void dequantize(const TernaryMatrix& matrix, std::span<float> out, int n_planes = -1);

/// InternalError when a plane holds anything the comments above exclude or breaks `sparsity`.
void check_matrix(const TernaryMatrix& matrix, const Sparsity& sparsity = kDense);

}  // namespace ts
