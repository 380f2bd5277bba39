#include "quantize/weight_profile.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quantize/fit_statistics.h"
#include "quantize/plan.h"
#include "quantize/ternary_fit.h"
#include "quantize/unrotated_rows.h"

namespace ts {
namespace {

constexpr int64_t kSampleRows = 32;
constexpr double kHistogramWidth = 4;
constexpr double kLeastError = 1e-30;

/// Rows evenly spread over the matrix, in the basis of the source.
std::vector<float> sample_rows(const PlannedTensor& planned) {
  const RowSource& rows = *planned.tensor.rows;
  const int64_t count = std::min(kSampleRows, rows.n_rows());
  const auto cols = static_cast<size_t>(rows.n_cols());
  std::vector<float> sample(static_cast<size_t>(count) * cols);
  for (int64_t i = 0; i < count; ++i)
    rows.read_row(i * rows.n_rows() / count,
                  std::span(sample).subspan(static_cast<size_t>(i) * cols, cols));
  rows.release();
  return sample;
}

void turn(std::vector<float>& sample, const Rotation& rotation) {
  const auto cols = static_cast<size_t>(rotation.width());
  for (size_t at = 0; at < sample.size(); at += cols)
    rotate_row(rotation, sample.data() + at, sample.data() + at);
}

std::array<uint32_t, kHistogramBins> histogram(const std::vector<float>& values) {
  const double rms = weight_statistics(values).rms;
  std::array<uint32_t, kHistogramBins> bins{};
  if (!(rms > 0)) return bins;
  for (const float v : values) {
    const double place = (static_cast<double>(v) / rms + kHistogramWidth) / (2 * kHistogramWidth);
    const double bin = std::clamp(place, 0.0, 1.0) * (kHistogramBins - 1);
    ++bins[static_cast<size_t>(std::lround(bin))];
  }
  return bins;
}

double fit_error(const std::vector<float>& sample, const PlannedTensor& planned, ThreadPool& pool) {
  TernaryOptions plain;
  plain.group = planned.options.group;
  plain.n_planes = planned.options.n_planes;
  plain.plane_fit = planned.options.plane_fit;
  plain.sparsity = planned.options.sparsity;
  const int64_t cols = planned.tensor.shape[0];
  const auto rows = static_cast<int64_t>(sample.size()) / cols;
  const TernaryMatrix fitted =
      fit_ternary(sample, rows, cols, nullptr, plain, pool, nullptr, planned.tensor.name);
  return fit_statistics(sample, fitted).relative_error;
}

double decibels(double error) {
  return -10 * std::log10(std::max(error, kLeastError));
}

}  // namespace

WeightProfile weight_profile(const PlannedTensor& planned, ThreadPool& pool) {
  WeightProfile profile;
  std::vector<float> sample = sample_rows(planned);
  profile.before = profile.after = histogram(sample);
  profile.plain_sqnr_before_db = profile.plain_sqnr_after_db =
      decibels(fit_error(sample, planned, pool));
  if (!planned.rotation) return profile;
  turn(sample, *planned.rotation);
  profile.after = histogram(sample);
  profile.plain_sqnr_after_db = decibels(fit_error(sample, planned, pool));
  return profile;
}

double plain_fit_error(const PlannedTensor& planned, const Rotation* rotation, ThreadPool& pool) {
  std::vector<float> sample = sample_rows(planned);
  if (rotation != nullptr) turn(sample, *rotation);
  return fit_error(sample, planned, pool);
}

}  // namespace ts
