/// A few rows of a matrix while they are fitted. Rows are independent of each other; they are
/// worked on in blocks of a fixed number, so that products with the metric are matrix products
/// whose shapes do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/progress.h"
#include "quantize/group_fit.h"
#include "quantize/ternary_options.h"

namespace ts {

inline constexpr int64_t kBlockRows = 64;

struct RowBlock {
  int64_t rows = 0, cols = 0, group = 0;
  int n_planes = 1;
  const float* weights = nullptr;  ///< [rows, cols]
  float* values = nullptr;         ///< [rows, cols]: what codes and scales mean
  CodeRun codes;                   ///< per plane [rows, cols]
  float* scales[kMaxPlanes] = {};  ///< per plane [rows, n_groups()]
  const CancelToken* cancel = nullptr;

  int64_t n_groups() const noexcept { return (cols + group - 1) / group; }
  int64_t group_end(int64_t begin) const noexcept { return std::min(cols, begin + group); }
  void get_scales(int64_t row, int64_t g, float* out) const noexcept {
    for (int p = 0; p < n_planes; ++p)
      out[p] = scales[p][row * n_groups() + g];
  }
  void set_scales(int64_t row, int64_t g, const float* in) const noexcept {
    for (int p = 0; p < n_planes; ++p)
      scales[p][row * n_groups() + g] = in[p];
  }
  void check_cancelled() const {
    if (cancel) cancel->check();
  }
};

}  // namespace ts
