/// The metric of a layer's output error, e' H e for a row error e, in the forms that fitting reads:
/// damped, scaled, and factored for error feedback. Made once per distinct input (q, k and v share
/// one) and used for every matrix that reads it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/progress.h"
#include "base/thread_pool.h"
#include "quantize/second_moment.h"

namespace ts {

class LossMetric {
 public:
  /// damping: multiple of the mean of the diagonal that is added to the diagonal (>= 0). When the
  /// factorization meets a pivot that is not positive, damping is multiplied by 10 (to at least
  /// 1e-4) and the factorization repeated; damping() tells what was used.
  /// Memory: 8 size^2 bytes, 12 size^2 while it is made, beside the moment.
  /// Errors: InvalidArgument (damping; a moment without tokens or with nothing but zeros; not
  /// positive definite with damping 10), Cancelled.
  LossMetric(const SecondMoment& moment, double damping, ThreadPool& pool,
             const CancelToken* cancel = nullptr);

  int64_t size() const noexcept { return size_; }
  double damping() const noexcept { return damping_; }
  /// [size, size]: (H + damping mean(diag H) I) * factor(), symmetric; the mean of its diagonal
  /// is 1.
  const float* matrix() const noexcept { return matrix_.data(); }
  double factor() const noexcept { return factor_; }

  /// With matrix() = V diag(D) V', V unit upper triangular: the loss of a row is
  /// sum_j D_j (e_j + sum_{i<j} e_i V_ij)^2. [size, size], what is not above the diagonal is 0.
  const float* feedback() const noexcept { return feedback_.data(); }
  /// D: the variance of input j that inputs j+1... do not explain.
  std::span<const float> conditional_variance() const noexcept { return conditional_variance_; }

  /// trace / sum D of the damped moment: by how much error feedback is expected to divide the loss
  /// of plain rounding.
  double predicted_gain() const noexcept;

 private:
  bool factorize(const SecondMoment& moment, double mean_diagonal, ThreadPool& pool,
                 const CancelToken* cancel);

  int64_t size_;
  double damping_;
  double factor_ = 0;
  std::vector<float> matrix_, feedback_, conditional_variance_;
};

/// Sum over rows of e' H e with the moment as it is (no damping), in double precision.
/// error [rows, moment.size()]. The loss of no output at all is layer_loss(weights).
double layer_loss(std::span<const float> error, int64_t rows, const SecondMoment& moment,
                  ThreadPool& pool);

}  // namespace ts
