#include "quantize/ternary_matrix.h"

#include <algorithm>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "base/half.h"

namespace ts {

void dequantize(const TernaryMatrix& matrix, std::span<float> out, int n_planes) {
  if (static_cast<int64_t>(out.size()) != matrix.rows * matrix.cols)
    throw InternalError(fmt::format("a buffer of {} values for a matrix of {} x {}", out.size(),
                                    matrix.rows, matrix.cols));
  std::fill(out.begin(), out.end(), 0.0F);
  const size_t count = n_planes < 0 ? matrix.planes.size()
                                    : std::min(matrix.planes.size(), static_cast<size_t>(n_planes));
  for (size_t p = 0; p < count; ++p) {
    const TernaryPlane& plane = matrix.planes[p];
    const int64_t groups = (matrix.cols + plane.group - 1) / plane.group;
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const float scale = plane.scales[static_cast<size_t>(r * groups + g)];
        const int64_t end = std::min(matrix.cols, (g + 1) * plane.group);
        for (int64_t c = g * plane.group; c < end; ++c) {
          const size_t at = static_cast<size_t>(r * matrix.cols + c);
          out[at] += scale * static_cast<float>(plane.codes[at]);
        }
      }
    }
  }
}

void check_matrix(const TernaryMatrix& matrix, const Sparsity& sparsity) {
  for (size_t p = 0; p < matrix.planes.size(); ++p) {
    const TernaryPlane& plane = matrix.planes[p];
    const int64_t groups = plane.group < 1 ? 0 : (matrix.cols + plane.group - 1) / plane.group;
    if (groups < 1 || static_cast<int64_t>(plane.codes.size()) != matrix.rows * matrix.cols ||
        static_cast<int64_t>(plane.scales.size()) != matrix.rows * groups)
      throw InternalError(fmt::format("plane {} of a {} x {} matrix has {} codes and {} scales", p,
                                      matrix.rows, matrix.cols, plane.codes.size(),
                                      plane.scales.size()));
    for (int64_t r = 0; r < matrix.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const auto refuse = [&](std::string_view what) {
          throw InternalError(fmt::format("plane {}, row {}, group {}: {}", p, r, g, what));
        };
        const float scale = plane.scales[static_cast<size_t>(r * groups + g)];
        if (!(scale >= 0) || half_to_float(float_to_half(scale)) != scale || scale > 65504.0F)
          refuse("the scale is no binary16 number >= 0");
        const int8_t* codes = plane.codes.data() + r * matrix.cols;
        const int64_t end = std::min(matrix.cols, (g + 1) * plane.group);
        bool any = false;
        for (int64_t c = g * plane.group; c < end; ++c) {
          if (codes[c] < -1 || codes[c] > 1) refuse("a code is not -1, 0 or 1");
          any |= codes[c] != 0;
        }
        if (any != (scale > 0)) refuse("the scale is 0 and codes are not, or the reverse");
        if (!any || sparsity.dense()) continue;
        for (int64_t c = g * plane.group; c + 3 < end; c += 4) {
          int count = 0;
          for (int k = 0; k < 4; ++k)
            count += codes[c + k] != 0;
          if (count < sparsity.min_nonzero || count > sparsity.max_nonzero)
            refuse("a block of four breaks the sparse pattern");
        }
      }
    }
  }
}

}  // namespace ts
