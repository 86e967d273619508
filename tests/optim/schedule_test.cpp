// Learning-rate schedules: their values at the ends and in between, their names, what is refused.
#include "bie/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/scratch.h"

namespace bie::optim::test {
namespace {

using bie::test::refusal;

constexpr ScheduleKind kinds[] = {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear};

TEST(Schedule, WithoutAWarmUpItStartsAtOne) {
  for (const ScheduleKind kind : kinds) {
    EXPECT_EQ((Schedule{kind}.factor(0, 100)), 1) << name(kind);
    EXPECT_EQ((Schedule{kind}.factor(0, 1)), 1) << name(kind);
  }
}

TEST(Schedule, EachKindHasItsCurve) {
  for (const std::int64_t step : {0, 1, 25, 50, 75, 99}) {
    const double p = static_cast<double>(step) / 100;
    EXPECT_EQ((Schedule{ScheduleKind::constant}.factor(step, 100)), 1);
    EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::linear}.factor(step, 100)), 1 - p);
    EXPECT_DOUBLE_EQ((Schedule{ScheduleKind::cosine}.factor(step, 100)), 0.5 * (1 + std::cos(M_PI * p)));
  }
  EXPECT_NEAR((Schedule{ScheduleKind::linear}.factor(99, 100)), 0.01, 1e-12);
  EXPECT_NEAR((Schedule{ScheduleKind::cosine}.factor(99, 100)), 0, 3e-4);
  EXPECT_GT((Schedule{ScheduleKind::cosine}.factor(99, 100)), 0) << "the last step still moves";
}

TEST(Schedule, TheWarmUpRisesInALineAndTheCurveFollows) {
  for (const ScheduleKind kind : kinds) {
    const Schedule schedule{kind, 0.2};
    const double first = schedule.factor(0, 100);
    EXPECT_GT(first, 0) << "no step is wasted";
    EXPECT_LT(first, 0.1);
    for (std::int64_t step = 1; step < 20; ++step)
      EXPECT_NEAR(schedule.factor(step, 100), first * static_cast<double>(step + 1), 1e-12) << step;
    EXPECT_LT(schedule.factor(19, 100), 1);
    EXPECT_EQ(schedule.factor(20, 100), 1) << "the first step after the warm-up";
    for (std::int64_t step = 20; step < 100; ++step)
      EXPECT_NEAR(schedule.factor(step, 100), (Schedule{kind}.factor(step - 20, 80)), 1e-12) << name(kind) << step;
  }
}

TEST(Schedule, FactorsLieInZeroToOne) {
  for (const ScheduleKind kind : kinds)
    for (const double warmup : {0.0, 0.05, 0.333, 0.999})
      for (const std::int64_t steps : {1, 2, 3, 10, 1001})
        for (std::int64_t step = 0; step < steps; ++step) {
          const double factor = Schedule{kind, warmup}.factor(step, steps);
          ASSERT_GT(factor, 0) << name(kind) << warmup << " " << step << " of " << steps;
          ASSERT_LE(factor, 1) << name(kind) << warmup << " " << step << " of " << steps;
        }
}

TEST(Schedule, WhatIsNoScheduleIsRefused) {
  for (const double warmup : {-0.01, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_NE(refusal([&] {
                Schedule{ScheduleKind::cosine, warmup}.factor(0, 10);
              }).find("warm-up"),
              std::string::npos);
  for (const std::int64_t step : {std::int64_t{-1}, std::int64_t{10}, std::int64_t{11}})
    EXPECT_NE(refusal([&] { Schedule{}.factor(step, 10); }).find("no step " + std::to_string(step)), std::string::npos);
}

TEST(Schedule, ItsNames) {
  for (const ScheduleKind kind : kinds) EXPECT_EQ(schedule_of(name(kind)), kind);
  EXPECT_STREQ(name(ScheduleKind::constant), "constant");
  EXPECT_STREQ(name(ScheduleKind::cosine), "cosine");
  EXPECT_STREQ(name(ScheduleKind::linear), "linear");
  for (const std::string text : {"", "Cosine", "step"})
    EXPECT_EQ(refusal([&] { schedule_of(text); }),
              "the schedule: expected constant, cosine or linear, got '" + text + "'");
}

}  // namespace
}  // namespace bie::optim::test
