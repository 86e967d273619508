// A curve as the pieces that are drawn: gaps where values are missing, no more points than can be seen.
#pragma once

#include <cstddef>
#include <vector>

namespace bie::report {

struct Point {
  double x, y;
};

/// Unbroken pieces of the curve through (x[i], y[i]); a value that is not drawable breaks it. Where there are more than
/// `most` points each bucket of neighbours keeps its lowest and its highest, so a spike is never lost, and a bucket
/// breaks the curve only if it holds no value at all. The first and the last value are always kept.
std::vector<std::vector<Point>> pieces(const std::vector<double>& x, const std::vector<double>& y, std::size_t most);

}  // namespace bie::report
