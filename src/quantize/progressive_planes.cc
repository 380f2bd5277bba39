// Refinement of planes that are to be useful one by one (refine.h).
//
// Feeding back the errors of all planes leaves the first planes alone no better than plain
// rounding. Here the loss of a row counts every prefix of the planes, each with `prefix_weight`
// times the weight of the next longer one, and codes of all planes move together:
//   L = sum_p prefix_weight^(n_planes - 1 - p) e_p' H e_p,   e_p = (sum of the planes 0..p) - w.
// Scales are refitted group by group from the same gradients; a row whose loss would rise keeps its
// scales.
#include <algorithm>
#include <cmath>
#include <vector>

#include "quantize/blas.h"
#include "quantize/cholesky.h"
#include "quantize/refine.h"

namespace ts {
namespace {

constexpr double kLeastGain = 1e-6;  // of a whole step; less is rounding noise

class Prefixes {
 public:
  Prefixes(const RowBlock& block, const LossMetric& metric, double prefix_weight)
      : block_(block), h_(metric.matrix()), n_(block.cols), planes_(block.n_planes) {
    for (int p = 0; p < planes_; ++p) {
      weight_[p] = std::pow(prefix_weight, planes_ - 1 - p);
      errors_[p].resize(static_cast<size_t>(block.rows * n_));
      gradients_[p].resize(errors_[p].size());
    }
  }

  void run(int rounds) {
    refresh();
    for (int round = 0; round <= rounds; ++round) {
      block_.check_cancelled();
      int64_t moved = 0;
      for (int64_t r = 0; r < block_.rows; ++r)
        moved += descend_row(r);
      if (round == rounds || moved == 0) break;
      refit();
    }
    for (int64_t r = 0; r < block_.rows; ++r) {
      for (int64_t j = 0; j < n_; ++j)
        block_.values[r * n_ + j] =
            block_.weights[r * n_ + j] + errors_[planes_ - 1][static_cast<size_t>(r * n_ + j)];
    }
  }

 private:
  /// Errors and gradients of all prefixes from codes and scales.
  void refresh() {
    for (int64_t r = 0; r < block_.rows; ++r) {
      for (int64_t g = 0; g < block_.n_groups(); ++g) {
        float scales[kMaxPlanes];
        block_.get_scales(r, g, scales);
        const int64_t begin = g * block_.group;
        for (int64_t j = begin; j < block_.group_end(begin); ++j) {
          const int64_t at = r * n_ + j;
          float value = 0;
          for (int p = 0; p < planes_; ++p) {
            value += static_cast<float>(block_.codes.plane[p][at]) * scales[p];
            errors_[p][static_cast<size_t>(at)] = value - block_.weights[at];
          }
        }
      }
    }
    for (int p = 0; p < planes_; ++p)
      blas::gemm(block_.rows, n_, n_, 1.0F, errors_[p].data(), n_, h_, n_, 0.0F,
                 gradients_[p].data(), n_);
  }

  double loss(int64_t row) const noexcept {
    double sum = 0;
    for (int p = 0; p < planes_; ++p) {
      const float* e = errors_[p].data() + row * n_;
      const float* g = gradients_[p].data() + row * n_;
      double product = 0;
      for (int64_t j = 0; j < n_; ++j)
        product += static_cast<double>(e[j]) * g[j];
      sum += weight_[p] * product;
    }
    return sum;
  }

  int64_t descend_row(int64_t row) {
    int64_t moved = 0;
    for (int64_t g = 0; g < block_.n_groups(); ++g) {
      float scales[kMaxPlanes];
      block_.get_scales(row, g, scales);
      const int64_t begin = g * block_.group;
      for (int64_t j = begin; j < block_.group_end(begin); ++j)
        moved += move(row, j, scales);
    }
    return moved;
  }

  /// Gives one position the best of all combinations of codes.
  bool move(int64_t row, int64_t j, const float* scales) {
    const auto at = static_cast<size_t>(row * n_ + j);
    const double diagonal = h_[j * n_ + j];
    const float w = block_.weights[at];
    int n_codes = 1;
    for (int p = 0; p < planes_; ++p)
      n_codes *= 3;
    const double step = scales[planes_ - 1];
    double best = -kLeastGain * diagonal * step * step;
    int choice = -1;
    for (int number = 0; number < n_codes; ++number) {
      double change = 0;
      float value = 0;
      for (int p = 0, rest = number; p < planes_; ++p, rest /= 3) {
        value += static_cast<float>(rest % 3 - 1) * scales[p];
        const double d = static_cast<double>(value - w) - errors_[p][at];
        change += weight_[p] * d * (2.0 * gradients_[p][at] + d * diagonal);
      }
      if (change < best) {
        best = change;
        choice = number;
      }
    }
    if (choice < 0) return false;
    float value = 0;
    for (int p = 0; p < planes_; ++p, choice /= 3) {
      const int code = choice % 3 - 1;
      block_.codes.plane[p][at] = static_cast<int8_t>(code);
      value += static_cast<float>(code) * scales[p];
      const float d = value - w - errors_[p][at];
      errors_[p][at] = value - w;
      if (d == 0) continue;
      float* gradient = gradients_[p].data() + row * n_;
      const float* h = h_ + j * n_;
      for (int64_t k = 0; k < n_; ++k)
        gradient[k] += d * h[k];
    }
    return true;
  }

  void refit() {
    const int64_t groups = block_.n_groups();
    std::vector<double> before(static_cast<size_t>(block_.rows));
    std::vector<std::vector<float>> old(static_cast<size_t>(planes_));
    for (int p = 0; p < planes_; ++p)
      old[static_cast<size_t>(p)].assign(block_.scales[p], block_.scales[p] + block_.rows * groups);
    for (int64_t r = 0; r < block_.rows; ++r) {
      before[static_cast<size_t>(r)] = loss(r);
      for (int64_t g = 0; g < groups; ++g)
        refit_group(r, g);
    }
    refresh();
    bool restored = false;
    for (int64_t r = 0; r < block_.rows; ++r) {
      if (loss(r) <= before[static_cast<size_t>(r)]) continue;
      restored = true;
      for (int p = 0; p < planes_; ++p)
        std::copy_n(old[static_cast<size_t>(p)].data() + r * groups, groups,
                    block_.scales[p] + r * groups);
    }
    if (restored) refresh();
  }

  /// The best scales of one group while all other groups stay.
  void refit_group(int64_t row, int64_t g) {
    const int64_t begin = g * block_.group;
    const int64_t end = block_.group_end(begin);
    double system[kMaxPlanes * kMaxPlanes] = {};
    double right[kMaxPlanes] = {};
    const CodeRun codes = block_.codes.at(row * n_);
    for (int64_t j = begin; j < end; ++j) {
      double product[kMaxPlanes] = {};
      const float* h = h_ + j * n_;
      for (int q = 0; q < planes_; ++q) {
        const int8_t* c = codes.plane[q];
        float sum = 0;
        for (int64_t k = begin; k < end; ++k)
          sum += static_cast<float>(c[k]) * h[k];
        product[q] = sum;
      }
      for (int q = 0; q < planes_; ++q) {
        const int code = codes.plane[q][j];
        if (code == 0) continue;
        for (int p = q; p < planes_; ++p)
          right[q] -= weight_[p] * code * gradients_[p][static_cast<size_t>(row * n_ + j)];
        for (int s = 0; s <= q; ++s)
          system[q * kMaxPlanes + s] += code * product[s];
      }
    }
    // Plane q is part of the prefixes q, q + 1, ...
    for (int q = 0; q < planes_; ++q) {
      double weight = 0;
      for (int p = q; p < planes_; ++p)
        weight += weight_[p];
      for (int s = 0; s <= q; ++s)
        system[q * kMaxPlanes + s] *= weight;
      system[q * kMaxPlanes + q] *= 1 + 1e-7;
    }
    if (!cholesky_small(system, planes_, kMaxPlanes)) return;
    cholesky_solve(system, planes_, kMaxPlanes, right);
    float scales[kMaxPlanes];
    block_.get_scales(row, g, scales);
    for (int p = 0; p < planes_; ++p) {
      const double wanted = scales[p] + right[p];
      if (!(wanted > 0 && wanted < 65504)) return;
      scales[p] = round_scale(wanted);
      if (!(scales[p] > 0)) return;
    }
    block_.set_scales(row, g, scales);
  }

  const RowBlock& block_;
  const float* h_;
  int64_t n_;
  int planes_;
  double weight_[kMaxPlanes] = {};
  std::vector<float> errors_[kMaxPlanes], gradients_[kMaxPlanes];
};

}  // namespace

void balance_prefixes(const RowBlock& block, const LossMetric& metric, double prefix_weight,
                      int rounds) {
  Prefixes(block, metric, prefix_weight).run(rounds);
}

}  // namespace ts
