#include "quantize/tensor_fit.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/half.h"
#include "base/quote_text.h"
#include "quantize/fit_statistics.h"
#include "quantize/ternary_fit.h"
#include "quantize/unrotated_rows.h"

namespace ts {
namespace {

/// Weights fitted at a time: enough to keep the threads busy, small beside a large layer.
constexpr int64_t kPieceElems = int64_t{1} << 25;
/// Smallest number the error is divided by, so that an exact fit has a finite ratio.
constexpr double kTinyRatio = 1e-30;

/// Means over the pieces of a matrix, weighted by their sizes.
struct Sums {
  double error = 0, energy = 0, zeros = 0, entropy = 0, kurtosis = 0, kurtosis_source = 0;
  double n = 0;
};

void pack_rows(const TernaryPlane& plane, const Codec& codec, int64_t n_rows, int64_t n_cols,
               std::vector<std::byte>& out, size_t at) {
  const auto cols = static_cast<size_t>(n_cols);
  const size_t row_bytes = codec.row_bytes(cols);
  const size_t n_groups = cols / static_cast<size_t>(plane.group);
  std::vector<uint16_t> scales(n_groups);
  for (size_t r = 0; r < static_cast<size_t>(n_rows); ++r) {
    for (size_t g = 0; g < n_groups; ++g)
      scales[g] = float_to_half(plane.scales[r * n_groups + g]);
    codec.pack(plane.codes.data() + r * cols, scales.data(), out.data() + at + r * row_bytes, cols);
  }
}

}  // namespace

FittedTensor fit_tensor(const PlannedTensor& planned, const std::string& input,
                        const LossMetric* metric, ThreadPool& pool, const CancelToken* cancel,
                        const EffectiveRows& effective, const ChangeRows& change) {
  const RowSource& source = *planned.tensor.rows;
  const Codec& codec = *planned.tensor.codec;
  const int64_t n_cols = source.n_cols(), n_rows = source.n_rows();
  const auto cols = static_cast<size_t>(n_cols);
  const std::string what = fmt::format("{}: {}", input, quote_text(planned.tensor.name));
  const int64_t step = std::clamp<int64_t>(kPieceElems / n_cols, 1, n_rows);

  FittedTensor result;
  result.planes.resize(static_cast<size_t>(planned.options.n_planes));
  for (auto& plane : result.planes)
    plane.resize(codec.row_bytes(cols) * static_cast<size_t>(n_rows));
  std::vector<float> weights(static_cast<size_t>(step) * cols);
  Sums sums;
  for (int64_t first = 0; first < n_rows; first += step) {
    if (cancel != nullptr) cancel->check();
    const int64_t count = std::min(step, n_rows - first);
    const std::span<float> piece(weights.data(), static_cast<size_t>(count) * cols);
    const auto row = [&](int64_t r) { return piece.subspan(static_cast<size_t>(r) * cols, cols); };
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        source.read_row(first + r, row(r));
    });
    const auto n = static_cast<double>(piece.size());
    sums.n += n;
    sums.kurtosis_source += n * weight_statistics(piece).kurtosis;
    if (change) change(piece, count);
    if (planned.rotation) {
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          rotate_row(*planned.rotation, row(r).data(), row(r).data());
      });
    }
    sums.kurtosis += n * (planned.rotation ? weight_statistics(piece).kurtosis : 0);
    const TernaryMatrix fitted =
        fit_ternary(piece, count, n_cols, metric, planned.options, pool, cancel, what);
    const FitStatistics statistics = fit_statistics(piece, fitted);
    double energy = 0;
    for (const float w : piece)
      energy += static_cast<double>(w) * w;
    sums.energy += energy;
    sums.error += energy * statistics.relative_error;
    sums.zeros += n * statistics.planes.front().zero_rate;
    sums.entropy += n * statistics.joint_entropy_bits;
    for (size_t p = 0; p < fitted.planes.size(); ++p)
      pack_rows(fitted.planes[p], codec, count, n_cols, result.planes[p],
                static_cast<size_t>(first) * codec.row_bytes(cols));
    if (!effective) continue;
    dequantize(fitted, piece);
    if (planned.rotation) {
      pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
        std::vector<float> stored(cols);
        for (int64_t r = begin; r < end; ++r) {
          std::copy(row(r).begin(), row(r).end(), stored.begin());
          unrotate_row(*planned.rotation, stored.data(), row(r).data());
        }
      });
    }
    effective(first, count, piece);
  }
  source.release();
  result.sqnr_db = -10 * std::log10(std::max(sums.error, kTinyRatio * sums.energy) /
                                    std::max(sums.energy, kTinyRatio));
  result.zero_rate = sums.zeros / sums.n;
  result.entropy_bits = sums.entropy / sums.n;
  result.kurtosis_source = sums.kurtosis_source / sums.n;
  result.kurtosis = planned.rotation ? sums.kurtosis / sums.n : result.kurtosis_source;
  return result;
}

}  // namespace ts
