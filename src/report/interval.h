// How sure a share is that was counted.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace bie::report {

struct Interval {
  double low, high;
};

/// Wilson's interval of 95 % for a share that was found in `count` samples (E. B. Wilson 1927):
/// (p + z^2/2n -+ z sqrt(p (1-p) / n + z^2/4n^2)) / (1 + z^2/n), z = 1.96. In [0, 1]; all of it without samples.
inline Interval wilson(double share, std::int64_t count) {
  if (count <= 0) return {0, 1};
  constexpr double z = 1.959963984540054;
  const auto n = static_cast<double>(count);
  const double middle = share + z * z / (2 * n), half = z * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  const double scale = 1 + z * z / n;
  return {std::fmax(0, (middle - half) / scale), std::fmin(1, (middle + half) / scale)};
}

/// Student's interval of 95 % for the mean of 2 to 20 values: mean -+ t s / sqrt(n), where s is their standard
/// deviation of n - 1 and t the quantile 0.975 of n - 1 degrees of freedom.
inline Interval interval_of_mean(const std::vector<double>& values) {
  constexpr double t[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                          2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093};
  const auto n = static_cast<double>(values.size());
  double mean = 0, squares = 0;
  for (const double value : values) mean += value / n;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const double half = t[values.size() - 2] * std::sqrt(squares / (n - 1) / n);
  return {mean - half, mean + half};
}

}  // namespace bie::report
