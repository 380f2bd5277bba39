#include "eval/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace ts {
namespace {

constexpr size_t kBins = 16;
// Elements of one piece of work, about; pieces are merged in order whatever thread did them.
constexpr int64_t kPieceElems = int64_t{1} << 18;

/// Sums of one piece. Central moments are taken about 0 and shifted at the end: weights have means
/// close to 0, so nothing cancels.
struct Piece {
  uint64_t n = 0, n_non_finite = 0, n_zero = 0, n_zero_groups = 0;
  double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  std::vector<uint64_t> histogram;
};

size_t symbol_of(float value, float largest, bool ternary) noexcept {
  if (ternary) {
    if (value == 0) return 1;
    if (value == -largest) return 0;
    return value == largest ? 2 : 3;
  }
  if (largest == 0) return kBins / 2;
  const float place = (value / largest + 1.0F) * (kBins / 2);
  return std::min(static_cast<size_t>(std::max(place, 0.0F)), kBins - 1);
}

/// Adds one group; returns its largest finite magnitude.
float add_group(const float* x, size_t n, bool ternary, Piece& piece) {
  float largest = 0;
  for (size_t i = 0; i < n; ++i) {
    if (std::isfinite(x[i])) largest = std::max(largest, std::fabs(x[i]));
  }
  for (size_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) {
      ++piece.n_non_finite;
      continue;
    }
    const double v = x[i];
    ++piece.n;
    piece.n_zero += x[i] == 0;
    piece.sum += v;
    piece.sum2 += v * v;
    piece.sum3 += v * v * v;
    piece.sum4 += v * v * v * v;
    piece.min = std::min(piece.min, v);
    piece.max = std::max(piece.max, v);
    ++piece.histogram[symbol_of(x[i], largest, ternary)];
  }
  piece.n_zero_groups += largest == 0;
  return largest;
}

std::vector<std::string> symbol_names(bool ternary) {
  if (ternary) return {"-", "0", "+", "other"};
  std::vector<std::string> names;
  for (size_t i = 0; i < kBins; ++i)
    names.push_back(fmt::format("{:.3f}", static_cast<double>(i) / (kBins / 2) - 1.0));
  return names;
}

}  // namespace

TensorStatistics compute_tensor_statistics(const TensorView& tensor, const Codec& codec,
                                           ThreadPool& pool, const Progress& progress) {
  TensorStatistics out;
  const bool ternary = codec.is_ternary();
  const auto width = static_cast<size_t>(tensor.shape[0]);
  const int64_t n_rows = width == 0 ? 0 : tensor.shape.n_rows();
  const size_t group = codec.group_elems == 0 ? width : codec.group_elems;
  out.n_elems = static_cast<uint64_t>(n_rows) * width;
  out.group_elems = group;
  out.symbols = symbol_names(ternary);
  out.histogram.assign(out.symbols.size(), 0);
  if (out.n_elems == 0) return out;

  const size_t groups_per_row = (width + group - 1) / group;
  const size_t row_bytes = codec.row_bytes(width);
  const int64_t rows_per_piece = std::max<int64_t>(1, kPieceElems / static_cast<int64_t>(width));
  const int64_t n_pieces = (n_rows + rows_per_piece - 1) / rows_per_piece;
  std::vector<Piece> pieces(static_cast<size_t>(n_pieces));
  std::vector<float> scales(static_cast<size_t>(n_rows) * groups_per_row);

  const auto do_piece = [&](int64_t p, std::vector<float>& row) {
    Piece& piece = pieces[static_cast<size_t>(p)];
    piece.histogram.assign(out.symbols.size(), 0);
    const int64_t end = std::min(n_rows, (p + 1) * rows_per_piece);
    for (int64_t r = p * rows_per_piece; r < end; ++r) {
      codec.decode(tensor.data.data() + static_cast<size_t>(r) * row_bytes, row.data(), width);
      for (size_t g = 0; g < groups_per_row; ++g) {
        const size_t begin = g * group;
        scales[static_cast<size_t>(r) * groups_per_row + g] =
            add_group(row.data() + begin, std::min(group, width - begin), ternary, piece);
      }
    }
  };
  // A few pieces per thread at a time, so that an interrupt is seen soon.
  const int64_t step = 4 * pool.n_threads();
  for (int64_t begin = 0; begin < n_pieces; begin += step) {
    progress("statistics of " + tensor.name, static_cast<uint64_t>(begin),
             static_cast<uint64_t>(n_pieces));
    const int64_t count = std::min(step, n_pieces - begin);
    pool.parallel_for(count, 1, [&](int64_t from, int64_t to) {
      std::vector<float> row(width);
      for (int64_t i = from; i < to; ++i)
        do_piece(begin + i, row);
    });
  }

  Piece all;
  for (const Piece& piece : pieces) {
    all.n += piece.n;
    all.n_non_finite += piece.n_non_finite;
    all.n_zero += piece.n_zero;
    all.n_zero_groups += piece.n_zero_groups;
    all.sum += piece.sum;
    all.sum2 += piece.sum2;
    all.sum3 += piece.sum3;
    all.sum4 += piece.sum4;
    all.min = std::min(all.min, piece.min);
    all.max = std::max(all.max, piece.max);
    for (size_t i = 0; i < out.histogram.size(); ++i)
      out.histogram[i] += piece.histogram[i];
  }
  out.n_non_finite = all.n_non_finite;
  out.n_groups = scales.size();
  out.n_zero_groups = all.n_zero_groups;
  if (all.n == 0) return out;

  const auto n = static_cast<double>(all.n);
  out.zero_rate = static_cast<double>(all.n_zero) / n;
  out.mean = all.sum / n;
  out.rms = std::sqrt(all.sum2 / n);
  out.min = all.min;
  out.max = all.max;
  for (const uint64_t count : out.histogram) {
    if (count == 0) continue;
    const double p = static_cast<double>(count) / n;
    out.entropy_bits -= p * std::log2(p);
  }
  const auto middle = scales.begin() + static_cast<std::ptrdiff_t>(scales.size() / 2);
  std::nth_element(scales.begin(), middle, scales.end());
  out.scale_median = *middle;
  out.scale_min = *std::min_element(scales.begin(), scales.end());
  out.scale_max = *std::max_element(scales.begin(), scales.end());
  if (out.rms > 0) out.outlier_ratio = out.scale_max / out.rms;
  const double m = out.mean;
  const double variance = all.sum2 / n - m * m;
  const double fourth =
      all.sum4 / n - 4 * m * all.sum3 / n + 6 * m * m * all.sum2 / n - 3 * m * m * m * m;
  if (variance > 0) out.kurtosis = fourth / (variance * variance);
  return out;
}

}  // namespace ts
