// Pools of any window beside the formula, of images wider than what is looked at at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bie/kernels/planes.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

struct Pools {
  PoolShape s;
  std::vector<float> x;

  /// The largest, the sum and the number of a window's pixels.
  struct Window {
    float largest;
    double sum;
    int count;
  };
  Window window(std::int64_t plane, std::int64_t row, std::int64_t column) const {
    Window w{-INFINITY, 0, 0};
    for (std::int64_t i = 0; i < s.kernel_h; ++i)
      for (std::int64_t j = 0; j < s.kernel_w; ++j) {
        const std::int64_t y = row * s.stride_h - s.top + i, at = column * s.stride_w - s.left + j;
        if (y < 0 || y >= s.height || at < 0 || at >= s.width) continue;
        const float v = x[static_cast<std::size_t>((plane * s.height + y) * s.width + at)];
        w.largest = std::max(w.largest, v);
        w.sum += static_cast<double>(v);
        ++w.count;
      }
    return w;
  }
};

TEST(Pools, AreTheirFormulas) {
  ReplayableRng rng;
  constexpr PoolShape shapes[] = {
      {2, 5, 6, 2, 2, 2, 2, 0, 0, 0, 0},    {3, 7, 9, 3, 3, 2, 2, 1, 1, 1, 1}, {1, 4, 1100, 3, 5, 1, 1, 1, 4, 2, 4},
      {2, 3, 1025, 2, 3, 1, 7, 0, 2, 1, 0}, {1, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1}, {1, 2, 2000, 2, 700, 1, 3, 0, 0, 0, 0},
  };
  for (const PoolShape& s : shapes) {
    Pools pools{s, std::vector<float>(static_cast<std::size_t>(s.planes * s.height * s.width))};
    for (float& v : pools.x) v = static_cast<float>(rng.between(-1000, 1000)) * 0.01f;
    const auto count = static_cast<std::size_t>(s.planes * s.out_height() * s.out_width());
    std::vector<float> largest(count), means(count), counted(count);
    max_pool(s, pools.x.data(), largest.data(), serial());
    average_pool(s, false, pools.x.data(), means.data(), serial());
    average_pool(s, true, pools.x.data(), counted.data(), serial());
    std::size_t at = 0;
    for (std::int64_t p = 0; p < s.planes; ++p)
      for (std::int64_t i = 0; i < s.out_height(); ++i)
        for (std::int64_t j = 0; j < s.out_width(); ++j, ++at) {
          const Pools::Window w = pools.window(p, i, j);
          ASSERT_EQ(largest[at], w.largest) << "window " << i << ", " << j << " of width " << s.width;
          ASSERT_NEAR(means[at], w.sum / w.count, 1e-3);
          ASSERT_NEAR(counted[at], w.sum / static_cast<double>(s.kernel_h * s.kernel_w), 1e-3);
        }
  }
}

}  // namespace
}  // namespace bie::kernels::test
