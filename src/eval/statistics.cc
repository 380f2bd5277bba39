#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ts {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // 97.5 % quantile of the normal distribution

}  // namespace

Estimate mean_of(std::span<const double> values) {
  Estimate out;
  if (values.empty()) return out;
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double v : values)
    sum += v;
  out.value = sum / n;
  if (values.size() < 2) return out;
  double squares = 0;  // of the differences: differences of large squares would lose digits
  for (const double v : values)
    squares += (v - out.value) * (v - out.value);
  out.std_error = std::sqrt(squares / n / (n - 1));
  return out;
}

Estimate root_mean_square(std::span<const double> values) {
  std::vector<double> squares(values.size());
  std::transform(values.begin(), values.end(), squares.begin(), [](double v) { return v * v; });
  const Estimate mean = mean_of(squares);
  Estimate out;
  out.value = std::sqrt(mean.value);
  if (out.value > 0) out.std_error = mean.std_error / (2 * out.value);
  return out;
}

Estimate proportion_of(uint64_t count, uint64_t n) {
  Estimate out;
  if (n == 0) return out;
  out.value = static_cast<double>(count) / static_cast<double>(n);
  if (n > 1) out.std_error = std::sqrt(out.value * (1 - out.value) / static_cast<double>(n - 1));
  return out;
}

Interval interval_95(const Estimate& estimate) {
  const double half = kNormal95 * estimate.std_error;
  return {estimate.value - half, estimate.value + half};
}

Interval proportion_interval_95(uint64_t count, uint64_t n) {
  if (n == 0) return {0, 1};
  const auto total = static_cast<double>(n);
  const double p = static_cast<double>(count) / total;
  const double z2 = kNormal95 * kNormal95;
  const double centre = (p + z2 / (2 * total)) / (1 + z2 / total);
  const double half =
      kNormal95 / (1 + z2 / total) * std::sqrt(p * (1 - p) / total + z2 / (4 * total * total));
  // Exactly 0 and 1 at the ends, whatever the rounding.
  return {count == 0 ? 0.0 : std::max(0.0, centre - half),
          count == n ? 1.0 : std::min(1.0, centre + half)};
}

double quantile_of_sorted(std::span<const double> sorted, double fraction) {
  const double at = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = at - static_cast<double>(below);
  return (1 - weight) * sorted[below] + weight * sorted[above];
}

}  // namespace ts
