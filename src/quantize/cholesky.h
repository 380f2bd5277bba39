/// Cholesky factorization, in tiles over the thread pool and for small systems.
#pragma once

#include <cstdint>

#include "base/progress.h"
#include "base/thread_pool.h"

namespace ts {

/// a [n, n] row-major, lower triangle given: becomes L with a = L L' (what is above the diagonal
/// is left undefined). False at the first pivot that is not positive; a is then undefined. Tiles
/// are of a fixed size: same bits for any number of threads. Throws Cancelled.
bool cholesky(double* a, int64_t n, ThreadPool& pool, const CancelToken* cancel);

/// The same for one small matrix with rows `stride` apart, on the calling thread.
bool cholesky_small(double* a, int64_t n, int64_t stride) noexcept;

/// x [n] becomes the solution of L L' x = x, for the factor of cholesky_small().
void cholesky_solve(const double* factor, int64_t n, int64_t stride, double* x) noexcept;

}  // namespace ts
