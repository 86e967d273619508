// Axes have round marks that hold the values between them, whatever the values are.
#include "report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace bie::report::test {
namespace {

std::vector<std::string> texts(const Axis& axis) {
  std::vector<std::string> found;
  for (const Tick& tick : axis.ticks) found.push_back(tick.text);
  return found;
}

using Texts = std::vector<std::string>;

TEST(Axis, RoundMarks) {
  EXPECT_EQ(texts(linear_axis(0, 1, Unit::number, 5)), (Texts{"0", "0.2", "0.4", "0.6", "0.8", "1.0"}));
  EXPECT_EQ(texts(linear_axis(0.013, 0.081, Unit::number, 5)), (Texts{"0", "0.02", "0.04", "0.06", "0.08", "0.10"}));
  EXPECT_EQ(texts(linear_axis(-3, 7, Unit::number, 5)), (Texts{"-4", "-2", "0", "2", "4", "6", "8"}));
  EXPECT_EQ(texts(linear_axis(0.9, 0.983, Unit::percent, 5)),
            (Texts{"90\u00a0%", "92\u00a0%", "94\u00a0%", "96\u00a0%", "98\u00a0%", "100\u00a0%"}));
  EXPECT_EQ(texts(linear_axis(0, 0.15, Unit::seconds, 3)), (Texts{"0", "50\u00a0ms", "100\u00a0ms", "150\u00a0ms"}));
}

TEST(Axis, SharesStayWithinZeroAndAHundred) {
  for (const auto& [low, high] :
       {std::pair{0.0, 0.0}, {1.0, 1.0}, {0.0, 1.0}, {0.97, 1.0}, {0.999999, 1.0}, {0.0, 1e-6}}) {
    const Axis axis = linear_axis(low, high, Unit::percent, 5);
    EXPECT_GE(axis.low, 0);
    EXPECT_LE(axis.high, 1 + 1e-12);
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high - 1e-12);
    EXPECT_LT(axis.low, axis.high);
  }
}

TEST(Axis, Logarithmic) {
  EXPECT_EQ(texts(log_axis(0.004, 0.9, Unit::number, 5)), (Texts{"0.01", "0.1", "1"}));
  EXPECT_EQ(texts(log_axis(777744, 12954408, Unit::bytes, 6)),
            (Texts{"500\u00a0kB", "1\u00a0MB", "2\u00a0MB", "5\u00a0MB", "10\u00a0MB", "20\u00a0MB"}));
  const Axis one = log_axis(5, 5, Unit::number, 5);
  EXPECT_LT(one.low, 5);
  EXPECT_GT(one.high, 5);
}

TEST(Axis, Counts) {
  EXPECT_EQ(texts(count_axis(1, 12, 6)), (Texts{"2", "4", "6", "8", "10", "12"}));
  EXPECT_EQ(texts(count_axis(1, 3, 6)), (Texts{"1", "2", "3"}));
  const Axis one = count_axis(7, 7, 6);
  EXPECT_EQ(texts(one), (Texts{"7"}));
  EXPECT_DOUBLE_EQ(one.place(7), 0.5);
}

TEST(Axis, AnyValuesGiveAnAxisThatHoldsThem) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(-320, 299), sign(-1, 1);
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<std::pair<double, double>> ranges = {
      {0, 0},          {1, 1 + 1e-16},   {-5e-324, 5e-324}, {1e15, 1e15 + 1}, {std::nan(""), 1}, {-infinity, infinity},
      {-9e299, 9e299}, {-1e299, -1e299}, {3e38, 3e38},      {0.5, 0.5},       {1e-280, 1e-280}};
  for (int i = 0; i < 5000; ++i) {
    const double low = sign(random) * std::pow(10, exponent(random)),
                 high = sign(random) * std::pow(10, exponent(random));
    ranges.push_back(std::minmax(low, high));
  }
  for (const auto& [low, high] : ranges) {
    SCOPED_TRACE(std::to_string(low) + " to " + std::to_string(high));
    for (const Unit unit : {Unit::number, Unit::percent, Unit::bytes, Unit::seconds}) {
      const Axis axis = linear_axis(low, high, unit, 5);
      ASSERT_LT(axis.low, axis.high);
      ASSERT_GE(axis.ticks.size(), 2u);
      ASSERT_LE(axis.ticks.size(), 12u);
      for (const Tick& tick : axis.ticks)
        ASSERT_TRUE(axis.place(tick.value) >= -1e-9 && axis.place(tick.value) <= 1 + 1e-9);
      if (!drawable(low) || !drawable(high)) continue;
      ASSERT_TRUE(axis.place(low) >= -1e-6 && axis.place(high) <= 1 + 1e-6) << axis.low << " " << axis.high;
    }
    if (!(low > 0) || !drawable(high)) continue;
    const Axis axis = log_axis(low, high, Unit::number, 5);
    ASSERT_LT(axis.low, axis.high);
    ASSERT_TRUE(axis.ticks.size() >= 1 && axis.ticks.size() <= 12) << axis.ticks.size();
    ASSERT_TRUE(axis.place(low) >= -1e-6 && axis.place(high) <= 1 + 1e-6) << axis.low << " " << axis.high;
  }
}

}  // namespace
}  // namespace bie::report::test
