#include "quantize/fit_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include <tensorsharp/error.hpp>

namespace ts {

double entropy_bits(std::span<const uint64_t> counts) noexcept {
  double total = 0;
  for (const uint64_t count : counts)
    total += static_cast<double>(count);
  double bits = 0;
  for (const uint64_t count : counts) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / total;
    bits -= share * std::log2(share);
  }
  return bits;
}

WeightStatistics weight_statistics(std::span<const float> weights) {
  WeightStatistics s;
  if (weights.empty()) return s;
  const double n = static_cast<double>(weights.size());
  double sum = 0;
  double squares = 0;
  double magnitudes = 0;
  for (const float w : weights) {
    sum += w;
    squares += static_cast<double>(w) * w;
    magnitudes += std::fabs(w);
    s.max_abs = std::max(s.max_abs, static_cast<double>(std::fabs(w)));
  }
  s.mean = sum / n;
  s.rms = std::sqrt(squares / n);
  s.mean_abs = magnitudes / n;
  double second = 0;
  double fourth = 0;
  for (const float w : weights) {
    const double d = (w - s.mean) * (w - s.mean);
    second += d;
    fourth += d * d;
  }
  if (second > 0) s.kurtosis = fourth * n / (second * second);
  if (s.mean_abs > 0) s.max_over_mean = s.max_abs / s.mean_abs;
  return s;
}

FitStatistics fit_statistics(std::span<const float> weights, const TernaryMatrix& matrix) {
  FitStatistics s;
  if (static_cast<int64_t>(weights.size()) != matrix.rows * matrix.cols)
    throw InternalError(fmt::format("{} weights beside a matrix of {} x {}", weights.size(),
                                    matrix.rows, matrix.cols));
  std::vector<float> fitted(weights.size());
  dequantize(matrix, fitted);
  double error = 0;
  double energy = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double d = static_cast<double>(fitted[i]) - weights[i];
    error += d * d;
    energy += static_cast<double>(weights[i]) * weights[i];
  }
  s.relative_error = energy > 0 ? error / energy : 0;
  s.sqnr_db = s.relative_error > 0 ? -10 * std::log10(s.relative_error)
                                   : std::numeric_limits<double>::infinity();
  size_t n_joint = 1;
  for (size_t p = 0; p < matrix.planes.size(); ++p)
    n_joint *= 3;
  std::vector<uint64_t> joint(n_joint, 0);
  std::vector<std::array<uint64_t, 3>> single(matrix.planes.size(), {0, 0, 0});
  for (size_t i = 0; i < weights.size(); ++i) {
    size_t symbol = 0;
    for (size_t p = 0; p < matrix.planes.size(); ++p) {
      const auto trit = static_cast<size_t>(matrix.planes[p].codes[i] + 1);
      symbol = symbol * 3 + trit;
      ++single[p][trit];
    }
    ++joint[symbol];
  }
  s.joint_entropy_bits = entropy_bits(joint);
  for (const auto& counts : single)
    s.planes.push_back({static_cast<double>(counts[1]) / static_cast<double>(weights.size()),
                        entropy_bits(counts)});
  return s;
}

}  // namespace ts
