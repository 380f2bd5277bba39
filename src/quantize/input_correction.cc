#include "quantize/input_correction.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "quantize/blas.h"
#include "quantize/cholesky.h"

namespace ts {

void correct_for_input_error(std::span<float> weights, int64_t rows, const CrossMoment& cross,
                             const SecondMoment& seen, double strength, double damping,
                             ThreadPool& pool, const CancelToken* cancel) {
  const int64_t n = seen.size();
  if (cross.size() != n)
    throw InvalidArgument(
        fmt::format("a cross moment of {} inputs beside a moment of {}", cross.size(), n));
  if (rows < 0 || static_cast<int64_t>(weights.size()) != rows * n)
    throw InvalidArgument(fmt::format("{} weights are not {} rows of {}", weights.size(), rows, n));
  if (!(strength >= 0 && strength <= 1))
    throw InvalidArgument(
        fmt::format("the strength of the input correction is {}: expected 0 to 1", strength));
  if (!(damping > 0) || !std::isfinite(damping))
    throw InvalidArgument(fmt::format("damping {}: expected a positive number", damping));
  const double mean_diagonal = seen.trace() / static_cast<double>(n);
  if (!(cross.total_weight() > 0) || !(mean_diagonal > 0))
    throw InvalidArgument("the input correction needs statistics of at least one token");
  if (strength == 0) return;
  blas::use_one_thread();

  std::vector<double> factor(static_cast<size_t>(n * n));
  std::vector<double> difference(static_cast<size_t>(n * n));  // C - H
  const double scale = 1.0 / cross.total_weight();
  pool.parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        const double h = seen.at(i, j);
        const size_t at = static_cast<size_t>(i * n + j);
        factor[at] = h + (i == j ? damping * mean_diagonal : 0.0);
        difference[at] = cross.sums()[at] * scale - h;
      }
    }
  });
  if (!cholesky(factor.data(), n, pool, cancel))
    throw InvalidArgument(fmt::format(
        "input statistics of {} channels are not positive definite with damping {}: raise it", n,
        damping));
  constexpr int64_t kRows = 64;
  pool.parallel_for(rows, kRows, [&](int64_t begin, int64_t end) {
    std::vector<double> w, delta;
    for (int64_t r0 = begin; r0 < end; r0 += kRows) {
      if (cancel) cancel->check();
      const int64_t m = std::min(kRows, end - r0);
      float* row = weights.data() + r0 * n;
      w.assign(row, row + m * n);
      delta.resize(static_cast<size_t>(m * n));
      blas::gemm(m, n, n, strength, w.data(), n, difference.data(), n, 0.0, delta.data(), n);
      blas::solve_right(m, n, factor.data(), n, true, delta.data(), n);
      blas::solve_right(m, n, factor.data(), n, false, delta.data(), n);
      for (int64_t i = 0; i < m * n; ++i)
        row[i] = static_cast<float>(w[static_cast<size_t>(i)] + delta[static_cast<size_t>(i)]);
    }
  });
}

}  // namespace ts
