// Curves keep their gaps, their ends and their spikes, however few points are left of them.
#include "report/series.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace bie::report::test {
namespace {

std::vector<double> ramp(std::size_t count) {
  std::vector<double> x(count);
  std::iota(x.begin(), x.end(), 1);
  return x;
}

const double nan = std::nan("");

TEST(Series, AMissingValueBreaksTheCurve) {
  const auto found = pieces(ramp(7), {nan, 1, 2, nan, 3, INFINITY, 4}, 100);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].size(), 2u);
  EXPECT_EQ(found[1].size(), 1u);
  EXPECT_EQ(found[2][0].x, 7);
  EXPECT_EQ(found[2][0].y, 4);
}

TEST(Series, NothingComesOfNothing) {
  EXPECT_TRUE(pieces({}, {}, 100).empty());
  EXPECT_TRUE(pieces(ramp(3), {nan, nan, nan}, 100).empty());
  EXPECT_TRUE(pieces(ramp(3), {}, 100).empty());
}

TEST(Series, SeriesOfUnequalLengthEndWithTheShorter) {
  EXPECT_EQ(pieces(ramp(2), {1, 2, 3}, 100)[0].size(), 2u);
  EXPECT_EQ(pieces(ramp(3), {1, 2}, 100)[0].size(), 2u);
}

TEST(Series, ManyPointsKeepEndsAndSpikes) {
  const std::size_t count = 10000;
  std::vector<double> y(count, 0.5);
  y[1234] = 9;
  y[7777] = -9;
  y[0] = 0.25;
  y[count - 1] = 0.75;
  const auto found = pieces(ramp(count), y, 400);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_LE(found[0].size(), 402u);
  EXPECT_GE(found[0].size(), 100u);
  EXPECT_EQ(found[0].front().y, 0.25);
  EXPECT_EQ(found[0].front().x, 1);
  EXPECT_EQ(found[0].back().y, 0.75);
  EXPECT_EQ(found[0].back().x, 10000);
  const auto has = [&](double x, double value) {
    return std::any_of(found[0].begin(), found[0].end(), [&](Point p) { return p.x == x && p.y == value; });
  };
  EXPECT_TRUE(has(1235, 9));
  EXPECT_TRUE(has(7778, -9));
  EXPECT_TRUE(std::is_sorted(found[0].begin(), found[0].end(), [](Point a, Point b) { return a.x < b.x; }));
}

TEST(Series, AmongManyPointsALongGapIsKept) {
  std::vector<double> y(10000, 1);
  std::fill(y.begin() + 4000, y.begin() + 5000, nan);
  y[6000] = nan;
  EXPECT_EQ(pieces(ramp(10000), y, 400).size(), 2u);
}

}  // namespace
}  // namespace bie::report::test
