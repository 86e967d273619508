// Numbers as they are read.
#include "report/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace bie::report::test {
namespace {

TEST(NumberText, Digits) {
  EXPECT_EQ(fixed(1.005, 1), "1.0");
  EXPECT_EQ(fixed(-0.04, 1), "0.0");
  EXPECT_EQ(fixed(-0.06, 1), "-0.1");
  EXPECT_EQ(significant(0.03125, 3), "0.0312");
  EXPECT_EQ(significant(2, 3), "2");
  EXPECT_EQ(significant(1e-6, 3), "1e-6");
  EXPECT_EQ(significant(-2.5e-10, 3), "-2.5e-10");
  EXPECT_EQ(significant(1e20, 3), "1e20");
  EXPECT_EQ(significant(1e100, 3), "1e100");
  EXPECT_EQ(coordinate(12), "12");
  EXPECT_EQ(coordinate(12.34), "12.3");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(18446744073709551615u), "18,446,744,073,709,551,615");
}

TEST(NumberText, Units) {
  EXPECT_EQ(with_unit(0.98333, Unit::percent), "98.33\u00a0%");
  EXPECT_EQ(with_unit(0, Unit::percent), "0.00\u00a0%");
  EXPECT_EQ(with_unit(1, Unit::bytes), "1.00\u00a0bytes");
  EXPECT_EQ(with_unit(777744, Unit::bytes), "778\u00a0kB");
  EXPECT_EQ(with_unit(54e-6, Unit::seconds), "54.0\u00a0\u00b5s");
  EXPECT_EQ(with_unit(7.78e-6, Unit::seconds), "7.78\u00a0\u00b5s");
  EXPECT_EQ(with_unit(0, Unit::seconds), "0\u00a0s");
  EXPECT_EQ(with_unit(119, Unit::seconds), "119\u00a0s");
  EXPECT_EQ(with_unit(130, Unit::seconds), "2.17\u00a0min");
  EXPECT_EQ(with_unit(9000, Unit::seconds), "2.50\u00a0h");
  EXPECT_EQ(with_unit(0.0001234, Unit::number), "0.0001234");
  EXPECT_EQ(round_with_unit(5e6, Unit::bytes), "5\u00a0MB");
  EXPECT_EQ(round_with_unit(20e-6, Unit::seconds), "20\u00a0\u00b5s");
}

TEST(NumberText, WhatCannotBeDrawnIsADash) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {std::nan(""), infinity, -infinity, 1e300}) {
    EXPECT_FALSE(drawable(value));
    for (const Unit unit : {Unit::number, Unit::percent, Unit::bytes, Unit::seconds})
      EXPECT_EQ(with_unit(value, unit), no_value);
  }
}

}  // namespace
}  // namespace bie::report::test
