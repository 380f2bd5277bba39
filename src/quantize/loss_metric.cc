#include "quantize/loss_metric.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "quantize/blas.h"
#include "quantize/cholesky.h"

namespace ts {
namespace {

constexpr double kMostDamping = 10;

}  // namespace

LossMetric::LossMetric(const SecondMoment& moment, double damping, ThreadPool& pool,
                       const CancelToken* cancel)
    : size_(moment.size()), damping_(damping) {
  if (!std::isfinite(damping) || damping < 0 || damping > kMostDamping)
    throw InvalidArgument(
        fmt::format("damping {}: expected a number from 0 to {}", damping, kMostDamping));
  const double mean_diagonal = moment.trace() / static_cast<double>(size_);
  if (!(mean_diagonal > 0) || !std::isfinite(mean_diagonal))
    throw InvalidArgument(fmt::format(
        "input statistics of {} channels over {} tokens have the mean energy {}: expected a "
        "positive number; calibrate with text that reaches this layer",
        size_, moment.total_weight(), mean_diagonal));
  while (!factorize(moment, mean_diagonal, pool, cancel)) {
    damping_ = std::max(damping_ * 10, 1e-4);
    if (damping_ > kMostDamping)
      throw InvalidArgument(fmt::format(
          "input statistics of {} channels are not positive definite even with damping {}: "
          "collect them again from more tokens",
          size_, kMostDamping));
  }

  const double added = damping_ * mean_diagonal;
  factor_ = 1.0 / (mean_diagonal + added);
  matrix_.resize(static_cast<size_t>(size_ * size_));
  pool.parallel_for(size_, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j < size_; ++j)
        matrix_[static_cast<size_t>(i * size_ + j)] =
            static_cast<float>((moment.at(i, j) + (i == j ? added : 0.0)) * factor_);
    }
  });
}

bool LossMetric::factorize(const SecondMoment& moment, double mean_diagonal, ThreadPool& pool,
                           const CancelToken* cancel) {
  // An upper factor R with H = R R' is the ordinary lower one of H with its rows and columns in
  // reverse order, reversed back. Then V = R / diag(R) column by column and D = diag(R)^2.
  const int64_t n = size_;
  const double scale = 1.0 / (mean_diagonal * (1.0 + damping_));
  const double added = damping_ * mean_diagonal;
  std::vector<double> reversed(static_cast<size_t>(n * n));
  pool.parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t j = 0; j <= i; ++j)
        reversed[static_cast<size_t>(i * n + j)] =
            (moment.at(n - 1 - i, n - 1 - j) + (i == j ? added : 0.0)) * scale;
    }
  });
  if (!cholesky(reversed.data(), n, pool, cancel)) return false;
  conditional_variance_.resize(static_cast<size_t>(n));
  feedback_.assign(static_cast<size_t>(n * n), 0.0F);
  const auto upper = [&](int64_t i, int64_t k) {
    return reversed[static_cast<size_t>((n - 1 - i) * n + n - 1 - k)];
  };
  for (int64_t k = 0; k < n; ++k) {
    conditional_variance_[static_cast<size_t>(k)] = static_cast<float>(upper(k, k) * upper(k, k));
    if (!(conditional_variance_[static_cast<size_t>(k)] > 0)) return false;
  }
  pool.parallel_for(n, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t k = i + 1; k < n; ++k)
        feedback_[static_cast<size_t>(i * n + k)] = static_cast<float>(upper(i, k) / upper(k, k));
    }
  });
  return true;
}

double LossMetric::predicted_gain() const noexcept {
  double trace = 0;
  double explained = 0;
  for (int64_t i = 0; i < size_; ++i) {
    trace += matrix_[static_cast<size_t>(i * size_ + i)];
    explained += conditional_variance_[static_cast<size_t>(i)];
  }
  return trace / explained;
}

double layer_loss(std::span<const float> error, int64_t rows, const SecondMoment& moment,
                  ThreadPool& pool) {
  const int64_t n = moment.size();
  if (rows < 0 || static_cast<int64_t>(error.size()) != rows * n)
    throw InvalidArgument(
        fmt::format("an error of {} values is not {} rows of {}", error.size(), rows, n));
  blas::use_one_thread();
  // Column tiles of H are built as they are needed: no second copy of the moment.
  constexpr int64_t kRows = 64;
  constexpr int64_t kColumns = 256;
  std::vector<double> block_sums(static_cast<size_t>((rows + kRows - 1) / kRows), 0.0);
  std::vector<double> columns(static_cast<size_t>(n * std::min(kColumns, n)));
  for (int64_t j0 = 0; j0 < n; j0 += kColumns) {
    const int64_t count = std::min(kColumns, n - j0);
    pool.parallel_for(n, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        for (int64_t j = 0; j < count; ++j)
          columns[static_cast<size_t>(i * count + j)] = moment.at(i, j0 + j);
      }
    });
    pool.parallel_for(rows, kRows, [&](int64_t begin, int64_t end) {
      std::vector<double> e, product;
      for (int64_t r0 = begin; r0 < end; r0 += kRows) {
        const int64_t m = std::min(kRows, end - r0);
        e.assign(error.begin() + r0 * n, error.begin() + (r0 + m) * n);
        product.resize(static_cast<size_t>(m * count));
        blas::gemm(m, count, n, 1.0, e.data(), n, columns.data(), count, 0.0, product.data(),
                   count);
        double sum = 0;
        for (int64_t r = 0; r < m; ++r) {
          for (int64_t j = 0; j < count; ++j)
            sum += product[static_cast<size_t>(r * count + j)] *
                   e[static_cast<size_t>(r * n + j0 + j)];
        }
        block_sums[static_cast<size_t>(r0 / kRows)] += sum;
      }
    });
  }
  double total = 0;
  for (const double sum : block_sums)
    total += sum;
  return total;
}

}  // namespace ts
