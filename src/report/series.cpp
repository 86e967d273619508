#include "report/series.h"

#include <algorithm>

#include "report/number_text.h"

namespace bie::report {

std::vector<std::vector<Point>> pieces(const std::vector<double>& x, const std::vector<double>& y, std::size_t most) {
  const std::size_t count = std::min(x.size(), y.size());
  std::size_t first = 0, last = count;
  while (first < count && !drawable(y[first])) ++first;
  while (last > first && !drawable(y[last - 1])) --last;

  std::vector<std::vector<Point>> found;
  bool broken = true;
  const auto keep = [&](std::size_t i) {
    if (broken) found.emplace_back();
    broken = false;
    found.back().push_back({x[i], y[i]});
  };
  // A bucket gives up to four points: lowest and highest, and at the ends the first and the last.
  const std::size_t bucket = last - first <= most ? 1 : 2 * (last - first) / std::max<std::size_t>(most, 2) + 1;
  for (std::size_t begin = first; begin < last; begin += bucket) {
    const std::size_t end = std::min(begin + bucket, last);
    std::vector<std::size_t> kept;
    for (std::size_t i = begin; i < end; ++i) {
      if (!drawable(y[i])) continue;
      if (kept.empty()) kept = {i, i};
      if (y[i] < y[kept[0]]) kept[0] = i;
      if (y[i] > y[kept[1]]) kept[1] = i;
    }
    if (kept.empty()) {
      broken = true;
      continue;
    }
    if (begin == first) kept.push_back(first);
    if (end == last) kept.push_back(last - 1);
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const std::size_t i : kept) keep(i);
  }
  return found;
}

}  // namespace bie::report
