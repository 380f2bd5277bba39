#include "quantize/cholesky.h"

#include <algorithm>
#include <cmath>

#include "quantize/blas.h"

namespace ts {
namespace {

constexpr int64_t kTile = 192;

}  // namespace

bool cholesky_small(double* a, int64_t n, int64_t stride) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    double* row = a + i * stride;
    for (int64_t j = 0; j < i; ++j) {
      const double* other = a + j * stride;
      double sum = row[j];
      for (int64_t k = 0; k < j; ++k)
        sum -= row[k] * other[k];
      row[j] = sum / other[j];
    }
    double pivot = row[i];
    for (int64_t k = 0; k < i; ++k)
      pivot -= row[k] * row[k];
    if (!(pivot > 0) || !std::isfinite(pivot)) return false;
    row[i] = std::sqrt(pivot);
  }
  return true;
}

void cholesky_solve(const double* factor, int64_t n, int64_t stride, double* x) noexcept {
  for (int64_t i = 0; i < n; ++i) {
    double sum = x[i];
    for (int64_t k = 0; k < i; ++k)
      sum -= factor[i * stride + k] * x[k];
    x[i] = sum / factor[i * stride + i];
  }
  for (int64_t i = n; i-- > 0;) {
    x[i] /= factor[i * stride + i];
    for (int64_t k = 0; k < i; ++k)
      x[k] -= factor[i * stride + k] * x[i];
  }
}

bool cholesky(double* a, int64_t n, ThreadPool& pool, const CancelToken* cancel) {
  blas::use_one_thread();
  const int64_t n_tiles = (n + kTile - 1) / kTile;
  const auto size_of = [&](int64_t tile) { return std::min(kTile, n - tile * kTile); };
  for (int64_t k = 0; k < n_tiles; ++k) {
    if (cancel) cancel->check();
    double* diagonal = a + k * kTile * n + k * kTile;
    if (!cholesky_small(diagonal, size_of(k), n)) return false;
    const int64_t below = n_tiles - k - 1;
    pool.parallel_for(below, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = k + 1 + begin; i < k + 1 + end; ++i) {
        blas::solve_right(size_of(i), size_of(k), diagonal, n, true, a + i * kTile * n + k * kTile,
                          n);
      }
    });
    // The tiles (i, j) with k < j <= i, numbered row by row.
    pool.parallel_for(below * (below + 1) / 2, 1, [&](int64_t begin, int64_t end) {
      int64_t row = 0;
      while ((row + 1) * (row + 2) / 2 <= begin)
        ++row;
      int64_t column = begin - row * (row + 1) / 2;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t i = k + 1 + row;
        const int64_t j = k + 1 + column;
        blas::gemm_bt(size_of(i), size_of(j), size_of(k), -1.0, a + i * kTile * n + k * kTile, n,
                      a + j * kTile * n + k * kTile, n, 1.0, a + i * kTile * n + j * kTile, n);
        if (++column > row) {
          ++row;
          column = 0;
        }
      }
    });
  }
  return true;
}

}  // namespace ts
