/// Estimates from samples, with their errors.
#pragma once

#include <cstdint>
#include <span>

namespace ts {

struct Estimate {
  double value = 0;
  double std_error = 0;  ///< standard error; 0 when there are fewer than two samples
};

struct Interval {
  double low = 0, high = 0;
};

/// Mean, with the standard error sqrt((mean of squares - square of mean) / (n - 1)).
Estimate mean_of(std::span<const double> values);
/// Root of the mean square, with the error of the mean square carried through the root.
Estimate root_mean_square(std::span<const double> values);
/// count / n, with the standard error sqrt(p (1 - p) / (n - 1)).
Estimate proportion_of(uint64_t count, uint64_t n);

/// 95 % interval around a mean: value +- 1.96 standard errors.
Interval interval_95(const Estimate& estimate);
/// 95 % interval of a proportion by Wilson's score, which stays within 0 and 1 and keeps a width
/// when all or none were right (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927).
Interval proportion_interval_95(uint64_t count, uint64_t n);

/// Quantile of ascending values by linear interpolation between the order statistics around
/// fraction * (n - 1); the median of an even number is the mean of the two in the middle.
/// `sorted` is not empty; `fraction` from 0 to 1.
double quantile_of_sorted(std::span<const double> sorted, double fraction);

}  // namespace ts
