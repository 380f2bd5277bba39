/// The second moment H = sum_t c_t x_t x_t' / sum_t c_t of the inputs of a linear layer, and the
/// cross moment of two streams of inputs. The mean is not subtracted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "hadamard/rotation.h"

namespace ts {

/// Products are summed in f32 over tiles of 256 tokens of one call, tiles in f64. The sums do not
/// depend on the number of threads.
class SecondMoment {
 public:
  /// InvalidArgument unless 1 <= size <= kMaxSize.
  explicit SecondMoment(int64_t size);
  /// From saved sums; InvalidArgument when they are not size * (size + 1) / 2 finite numbers with a
  /// diagonal >= 0, or the weight is negative or not finite.
  SecondMoment(int64_t size, std::vector<double> sums, double total_weight);

  static constexpr int64_t kMaxSize = int64_t{1} << 17;

  /// Adds inputs [n_tokens, size]. token_weights [n_tokens] (>= 0; 0 leaves a token out) or null
  /// for 1. FormatError for a value that is not finite, naming token and channel; nothing has been
  /// added then.
  void add(const float* inputs, int64_t n_tokens, const float* token_weights, ThreadPool& pool);
  /// Adds the sums of another moment of the same size.
  void add(const SecondMoment& other);

  /// H becomes R H R': the moment of the rotated inputs. The rotation's width must be size().
  void rotate(const Rotation& rotation, ThreadPool& pool);

  int64_t size() const noexcept { return size_; }
  double total_weight() const noexcept { return total_weight_; }
  /// The lower triangle of sum_t c_t x_t x_t', row by row: element (i, j <= i) is at
  /// i (i + 1) / 2 + j. Not divided by total_weight(). For saving.
  std::span<const double> sums() const noexcept { return sums_; }
  /// H[i][j]; 0 when nothing was added.
  double at(int64_t i, int64_t j) const noexcept;
  std::vector<double> diagonal() const;
  double trace() const;

 private:
  int64_t size_;
  double total_weight_ = 0;
  std::vector<double> sums_;
};

/// C = sum_t c_t x_t y_t' / sum_t c_t of a reference stream x and another stream y, [size, size].
class CrossMoment {
 public:
  explicit CrossMoment(int64_t size);
  CrossMoment(int64_t size, std::vector<double> sums, double total_weight);
  /// x, y: [n_tokens, size]. As SecondMoment::add().
  void add(const float* x, const float* y, int64_t n_tokens, const float* token_weights,
           ThreadPool& pool);
  /// C becomes R C R'.
  void rotate(const Rotation& rotation, ThreadPool& pool);

  int64_t size() const noexcept { return size_; }
  double total_weight() const noexcept { return total_weight_; }
  /// [size, size] row by row, not divided by total_weight().
  std::span<const double> sums() const noexcept { return sums_; }

 private:
  int64_t size_;
  double total_weight_ = 0;
  std::vector<double> sums_;
};

}  // namespace ts
