#include "quantize/feedback_sweep.h"

#include <algorithm>
#include <cmath>

#include "quantize/blas.h"

namespace ts {
namespace {

constexpr int64_t kColumns = 128;  // compensated by one matrix product

}  // namespace

FeedbackSweep::FeedbackSweep(const LossMetric& metric, const TernaryOptions& options,
                             ThreadPool& pool)
    : metric_(metric),
      options_(options),
      block_columns_(options.group >= kColumns ? std::min(options.group, metric.size())
                                               : kColumns / options.group * options.group) {
  const int64_t n = metric.size();
  const float* v = metric.feedback();
  inverse_.resize(static_cast<size_t>((n + block_columns_ - 1) / block_columns_));
  pool.parallel_for(static_cast<int64_t>(inverse_.size()), 1, [&](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const int64_t j0 = b * block_columns_;
      const int64_t size = std::min(block_columns_, n - j0);
      std::vector<double> inverse(static_cast<size_t>(size * size), 0.0);
      for (int64_t i = size; i-- > 0;) {
        inverse[static_cast<size_t>(i * size + i)] = 1;
        for (int64_t k = i + 1; k < size; ++k) {
          const double factor = v[(j0 + i) * n + j0 + k];
          for (int64_t j = k; j < size; ++j)
            inverse[static_cast<size_t>(i * size + j)] -=
                factor * inverse[static_cast<size_t>(k * size + j)];
        }
      }
      inverse_[static_cast<size_t>(b)].assign(inverse.begin(), inverse.end());
    }
  });
}

void FeedbackSweep::run(const RowBlock& block) const {
  const int64_t n = block.cols;
  std::vector<float> errors(static_cast<size_t>(block.rows * n));
  std::vector<float> sums(static_cast<size_t>(block.rows * block_columns_));
  std::vector<float> shift(sums.size());
  std::vector<float> columns(sums.size());
  std::vector<Levels> levels(static_cast<size_t>(block.rows));
  GroupFitter fitter(options_);
  for (int64_t j0 = 0; j0 < n; j0 += block_columns_) {
    block.check_cancelled();
    const int64_t size = std::min(block_columns_, n - j0);
    const std::vector<float>& inverse = inverse_[static_cast<size_t>(j0 / block_columns_)];
    // The weights of these columns that would be best for the errors of all columns before.
    if (j0 > 0) {
      blas::gemm(block.rows, size, j0, 1.0F, errors.data(), n, metric_.feedback() + j0, n, 0.0F,
                 sums.data(), size);
      blas::gemm(block.rows, size, size, 1.0F, sums.data(), size, inverse.data(), size, 0.0F,
                 shift.data(), size);
    }
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t j = 0; j < size; ++j)
        columns[static_cast<size_t>(j * block.rows + r)] =
            block.weights[r * n + j0 + j] -
            (j0 > 0 ? shift[static_cast<size_t>(r * size + j)] : 0.0F);
    }
    quantize_columns(block, j0, j0 + size, fitter, columns, levels);
    for (int64_t r = 0; r < block.rows; ++r) {
      for (int64_t j = j0; j < j0 + size; ++j)
        errors[static_cast<size_t>(r * n + j)] = block.values[r * n + j] - block.weights[r * n + j];
    }
  }
}

void FeedbackSweep::quantize_columns(const RowBlock& block, int64_t begin, int64_t end,
                                     GroupFitter& fitter, std::vector<float>& columns,
                                     std::vector<Levels>& levels) const {
  const int64_t n = block.cols;
  const int64_t rows = block.rows;
  const int64_t size = end - begin;
  const std::vector<float>& inverse = inverse_[static_cast<size_t>(begin / block_columns_)];
  const float* variance = metric_.conditional_variance().data();
  const bool dense = options_.sparsity.dense();
  const BlockOfFour pattern(options_.sparsity, options_.n_planes);
  std::vector<float> gathered(static_cast<size_t>(std::min(options_.group, n)));
  std::vector<float> missed(static_cast<size_t>(rows));
  std::vector<uint8_t> states(static_cast<size_t>(4 * rows));
  for (int64_t j = begin; j < end; ++j) {
    float* column = columns.data() + (j - begin) * rows;
    if (j % options_.group == 0) {
      const int64_t group_end = block.group_end(j);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = j; k < group_end; ++k)
          gathered[static_cast<size_t>(k - j)] =
              columns[static_cast<size_t>((k - begin) * rows + r)];
        float scales[kMaxPlanes];
        fitter.fit_scales(gathered.data(), options_.weight_scales ? variance + j : nullptr,
                          group_end - j, scales);
        block.set_scales(r, j / options_.group, scales);
        levels[static_cast<size_t>(r)].set(scales, block.n_planes);
      }
    }
    if (!dense && j % 4 == 0) {
      for (int64_t r = 0; r < rows; ++r) {
        float w[4];
        for (int64_t k = 0; k < 4; ++k)
          w[k] = column[k * rows + r];
        pattern.choose(w, variance + j, levels[static_cast<size_t>(r)], states.data() + 4 * r);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Levels& own = levels[static_cast<size_t>(r)];
      const float w = column[r];
      const Level& level =
          dense ? own.nearest(std::fabs(w))
                : nearest_of_state(own, std::fabs(w), states[static_cast<size_t>(4 * r + j % 4)]);
      const float value = w < 0 ? -level.value : level.value;
      block.values[r * n + j] = value;
      block.codes.set(r * n + j, block.n_planes, level, w < 0);
      missed[static_cast<size_t>(r)] = w - value;
    }
    for (int64_t k = j + 1; k < end; ++k) {
      const float factor = inverse[static_cast<size_t>((j - begin) * size + k - begin)];
      float* later = columns.data() + (k - begin) * rows;
      for (int64_t r = 0; r < rows; ++r)
        later[r] -= missed[static_cast<size_t>(r)] * factor;
    }
  }
}

}  // namespace ts
