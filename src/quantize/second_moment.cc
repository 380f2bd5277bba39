#include "quantize/second_moment.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

#include "quantize/blas.h"

namespace ts {
namespace {

constexpr int64_t kTokens = 256;  // summed in f32
constexpr int64_t kTile = 256;    // outputs of one product, in each direction

int64_t triangle(int64_t n) noexcept {
  return n * (n + 1) / 2;
}

void check_size(int64_t size) {
  if (size < 1 || size > SecondMoment::kMaxSize)
    throw InvalidArgument(
        fmt::format("a moment of {} inputs: expected 1 to {}", size, SecondMoment::kMaxSize));
}

void check_weight(double total_weight) {
  if (!std::isfinite(total_weight) || total_weight < 0)
    throw InvalidArgument(fmt::format(
        "saved input statistics have the total weight {}: collect them again", total_weight));
}

void check_sums(const std::vector<double>& sums, int64_t expected) {
  if (static_cast<int64_t>(sums.size()) != expected)
    throw InvalidArgument(
        fmt::format("saved input statistics hold {} sums, expected {}: collect them again",
                    sums.size(), expected));
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!std::isfinite(sums[i]))
      throw InvalidArgument(
          fmt::format("saved input statistics: sum {} is {}: collect them again", i, sums[i]));
  }
}

void check_inputs(const float* x, int64_t n_tokens, int64_t size) {
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t i = 0; i < size; ++i) {
      if (!std::isfinite(x[t * size + i]))
        throw FormatError(fmt::format(
            "the input of a layer is {} at token {}, channel {}: the model computes no finite "
            "values on the calibration text",
            x[t * size + i], t, i));
    }
  }
}

/// Sum of the weights (n_tokens when null). InvalidArgument for one that is negative or not finite.
double sum_weights(const float* weights, int64_t n_tokens) {
  if (!weights) return static_cast<double>(n_tokens);
  double sum = 0;
  for (int64_t t = 0; t < n_tokens; ++t) {
    if (!std::isfinite(weights[t]) || weights[t] < 0)
      throw InvalidArgument(
          fmt::format("token {} has the weight {}: expected a finite number >= 0", t, weights[t]));
    sum += weights[t];
  }
  return sum;
}

/// y [n_tokens, size] = weight of the token times x; `x` itself without weights.
const float* weighted(const float* x, int64_t n_tokens, int64_t size, const float* weights,
                      std::vector<float>& storage) {
  if (!weights) return x;
  storage.resize(static_cast<size_t>(n_tokens * size));
  for (int64_t t = 0; t < n_tokens; ++t) {
    for (int64_t i = 0; i < size; ++i)
      storage[static_cast<size_t>(t * size + i)] = weights[t] * x[t * size + i];
  }
  return storage.data();
}

/// Calls add(row, column, value) for all elements of the tile (bi, bj) of x' y.
template <typename Add>
void add_tile(const float* x, const float* y, int64_t n_tokens, int64_t size, int64_t bi,
              int64_t bj, const Add& add) {
  const int64_t i0 = bi * kTile;
  const int64_t j0 = bj * kTile;
  const int64_t rows = std::min(kTile, size - i0);
  const int64_t cols = std::min(kTile, size - j0);
  std::vector<float> product(static_cast<size_t>(rows * cols));
  for (int64_t t = 0; t < n_tokens; t += kTokens) {
    blas::gemm_at(rows, cols, std::min(kTokens, n_tokens - t), 1.0F, x + t * size + i0, size,
                  y + t * size + j0, size, 0.0F, product.data(), cols);
    for (int64_t i = 0; i < rows; ++i)
      add(i0 + i, j0, cols, product.data() + i * cols);
  }
}

void fold_rows(std::vector<double>& square, int64_t size, const Rotation& rotation,
               ThreadPool& pool) {
  pool.parallel_for(size, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      rotation.fold_row({square.data() + i * size, static_cast<size_t>(size)});
  });
}

void transpose(std::vector<double>& square, int64_t size) {
  for (int64_t i0 = 0; i0 < size; i0 += 32) {
    for (int64_t j0 = 0; j0 <= i0; j0 += 32) {
      for (int64_t i = i0; i < std::min(i0 + 32, size); ++i) {
        for (int64_t j = j0; j < std::min(j0 + 32, i); ++j)
          std::swap(square[static_cast<size_t>(i * size + j)],
                    square[static_cast<size_t>(j * size + i)]);
      }
    }
  }
}

void check_rotation(const Rotation& rotation, int64_t size) {
  if (rotation.width() != size)
    throw InvalidArgument(
        fmt::format("a rotation of width {} for a moment of {} inputs", rotation.width(), size));
}

}  // namespace

SecondMoment::SecondMoment(int64_t size) : size_(size) {
  check_size(size);
  sums_.assign(static_cast<size_t>(triangle(size)), 0.0);
}

SecondMoment::SecondMoment(int64_t size, std::vector<double> sums, double total_weight)
    : size_(size), total_weight_(total_weight), sums_(std::move(sums)) {
  check_size(size);
  check_weight(total_weight);
  check_sums(sums_, triangle(size));
  for (int64_t i = 0; i < size; ++i) {
    if (sums_[static_cast<size_t>(triangle(i) + i)] < 0)
      throw InvalidArgument(fmt::format(
          "saved input statistics: channel {} has the negative energy {}: collect them again", i,
          sums_[static_cast<size_t>(triangle(i) + i)]));
  }
}

void SecondMoment::add(const float* inputs, int64_t n_tokens, const float* token_weights,
                       ThreadPool& pool) {
  if (n_tokens <= 0) return;
  check_inputs(inputs, n_tokens, size_);
  const double added = sum_weights(token_weights, n_tokens);
  blas::use_one_thread();
  std::vector<float> storage;
  const float* y = weighted(inputs, n_tokens, size_, token_weights, storage);
  const int64_t n_tiles = (size_ + kTile - 1) / kTile;
  pool.parallel_for(triangle(n_tiles), 1, [&](int64_t begin, int64_t end) {
    int64_t bi = 0;
    while (triangle(bi + 1) <= begin)
      ++bi;
    int64_t bj = begin - triangle(bi);
    for (int64_t tile = begin; tile < end; ++tile) {
      add_tile(inputs, y, n_tokens, size_, bi, bj,
               [&](int64_t i, int64_t j0, int64_t cols, const float* product) {
                 double* row = sums_.data() + triangle(i) + j0;
                 const int64_t count = std::min(cols, i - j0 + 1);
                 for (int64_t j = 0; j < count; ++j)
                   row[j] += product[j];
               });
      if (++bj > bi) {
        ++bi;
        bj = 0;
      }
    }
  });
  total_weight_ += added;
}

void SecondMoment::add(const SecondMoment& other) {
  if (other.size_ != size_)
    throw InvalidArgument(
        fmt::format("moments of {} and {} inputs cannot be added", size_, other.size_));
  for (size_t i = 0; i < sums_.size(); ++i)
    sums_[i] += other.sums_[i];
  total_weight_ += other.total_weight_;
}

void SecondMoment::rotate(const Rotation& rotation, ThreadPool& pool) {
  check_rotation(rotation, size_);
  std::vector<double> square(static_cast<size_t>(size_ * size_));
  for (int64_t i = 0; i < size_; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const double value = sums_[static_cast<size_t>(triangle(i) + j)];
      square[static_cast<size_t>(i * size_ + j)] = value;
      square[static_cast<size_t>(j * size_ + i)] = value;
    }
  }
  fold_rows(square, size_, rotation, pool);
  transpose(square, size_);
  fold_rows(square, size_, rotation, pool);
  for (int64_t i = 0; i < size_; ++i)
    std::copy_n(square.data() + i * size_, i + 1, sums_.data() + triangle(i));
}

double SecondMoment::at(int64_t i, int64_t j) const noexcept {
  if (total_weight_ <= 0) return 0;
  return sums_[static_cast<size_t>(triangle(std::max(i, j)) + std::min(i, j))] / total_weight_;
}

std::vector<double> SecondMoment::diagonal() const {
  std::vector<double> values(static_cast<size_t>(size_));
  for (int64_t i = 0; i < size_; ++i)
    values[static_cast<size_t>(i)] = at(i, i);
  return values;
}

double SecondMoment::trace() const {
  double sum = 0;
  for (int64_t i = 0; i < size_; ++i)
    sum += at(i, i);
  return sum;
}

CrossMoment::CrossMoment(int64_t size) : size_(size) {
  check_size(size);
  sums_.assign(static_cast<size_t>(size * size), 0.0);
}

CrossMoment::CrossMoment(int64_t size, std::vector<double> sums, double total_weight)
    : size_(size), total_weight_(total_weight), sums_(std::move(sums)) {
  check_size(size);
  check_weight(total_weight);
  check_sums(sums_, size * size);
}

void CrossMoment::add(const float* x, const float* y, int64_t n_tokens, const float* token_weights,
                      ThreadPool& pool) {
  if (n_tokens <= 0) return;
  check_inputs(x, n_tokens, size_);
  check_inputs(y, n_tokens, size_);
  const double added = sum_weights(token_weights, n_tokens);
  blas::use_one_thread();
  std::vector<float> storage;
  const float* scaled = weighted(x, n_tokens, size_, token_weights, storage);
  const int64_t n_tiles = (size_ + kTile - 1) / kTile;
  pool.parallel_for(n_tiles * n_tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t tile = begin; tile < end; ++tile) {
      add_tile(scaled, y, n_tokens, size_, tile / n_tiles, tile % n_tiles,
               [&](int64_t i, int64_t j0, int64_t cols, const float* product) {
                 double* row = sums_.data() + i * size_ + j0;
                 for (int64_t j = 0; j < cols; ++j)
                   row[j] += product[j];
               });
    }
  });
  total_weight_ += added;
}

void CrossMoment::rotate(const Rotation& rotation, ThreadPool& pool) {
  check_rotation(rotation, size_);
  fold_rows(sums_, size_, rotation, pool);
  transpose(sums_, size_);
  fold_rows(sums_, size_, rotation, pool);
  transpose(sums_, size_);
}

}  // namespace ts
