// The page of a comparison; see run_report_test.cpp.
#include "report/comparison_report.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/report/page_check.h"

namespace bie::report::test {
namespace {

ComparisonReport full() {
  ComparisonReport report;
  report.title = "Digits";
  report.notes = {"1* stays as it started."};
  report.widths = {{"32", 0, {0.98, 0.985, 0.99}, unknown, 12954408, 411e-6, 72.8e-6},
                   {"1", 0.976, {0.98, 0.97, 0.99}, 0.435, 777744, 54e-6, 7.92e-6},
                   {"1*", 0.976, {0.96, 0.97, 0.98}, 0, 777744, 54e-6, 7.78e-6}};
  return report;
}

TEST(ComparisonReport, HasATableAndTwoCharts) {
  const std::string page = html(full());
  EXPECT_TRUE(well_formed(page));
  EXPECT_EQ(count(page, "<svg "), 2);
  EXPECT_TRUE(holds(page, "98.00 to 99.00"));
  EXPECT_TRUE(holds(page, "54.0\u00a0\u00b5s (7.61\u00d7)"));
  EXPECT_TRUE(holds(page, "777,744"));
  EXPECT_EQ(count(page, ">1* bit</text>"), 2);
}

TEST(ComparisonReport, EveryPartMayBeLeftOut) {
  EXPECT_TRUE(well_formed(html(ComparisonReport{})));
  ComparisonReport report = full();
  for (Width& width : report.widths) width = {width.name, unknown, {}, unknown, 0, unknown, unknown};
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_FALSE(holds(page, "<svg "));
  EXPECT_FALSE(holds(page, "flipped</th>"));
  EXPECT_TRUE(holds(page, "<td class=\"words\">1*</td>"));
}

TEST(ComparisonReport, ASeedWithoutAValueIsPassedOver) {
  ComparisonReport report = full();
  report.widths[1].accuracies = {unknown, 0.97, unknown};
  EXPECT_TRUE(holds(html(report), "97.00\u00a0%"));
  report.widths[0].seconds_1 = 0;
  report.widths[1].seconds_1 = -1;
  report.widths[2].name = "\"><script>";
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_FALSE(holds(page, "<script"));
}

TEST(ComparisonReport, ManyEqualWidthsDoNotLeaveThePicture) {
  ComparisonReport report;
  for (int i = 0; i < 20; ++i) report.widths.push_back({"width", 1, {0.5}, unknown, 1000, 1e-3, 1e-3});
  EXPECT_TRUE(well_formed(html(report)));
}

}  // namespace
}  // namespace bie::report::test
