// How sure a share is that was counted.
#pragma once

#include <cmath>
#include <cstdint>

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

}  // namespace bie::report
