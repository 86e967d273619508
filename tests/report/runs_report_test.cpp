// The page of several runs: names that tell its curves apart, an axis that says what it is.
#include "report/runs_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/report/page_check.h"

namespace bie::report::test {
namespace {

RunsReport runs_of(const std::vector<std::string>& names, double last_loss = 1.5) {
  RunsReport report;
  report.title = "runs";
  for (const std::string& name : names) {
    Run run;
    run.name = name;
    run.test_score = 0.9;
    for (int i = 1; i <= 3; ++i) {
      Epoch epoch;
      epoch.number = i;
      epoch.loss = std::pow(last_loss, (i - 1) / 2.0);
      epoch.test_score = 0.3 * i;
      run.epochs.push_back(epoch);
    }
    report.runs.push_back(run);
  }
  return report;
}

/// Names of curves, which stand in both charts.
void expect_names(const std::vector<std::string>& runs, const std::vector<std::string>& wanted) {
  const std::string page = html(runs_of(runs));
  EXPECT_TRUE(well_formed(page));
  for (const std::string& name : wanted) EXPECT_EQ(count(page, ">" + name + "</text>"), 2) << name;
}

TEST(RunsReport, NamesOfASweepAreTheirDifferences) {
  expect_names({"schedule-cosine,bits-8,seed-0", "schedule-cosine,bits-8,seed-1", "schedule-cosine,bits-4,seed-0"},
               {"bits-8,seed-0", "bits-8,seed-1", "bits-4,seed-0"});
  expect_names({"a", "b"}, {"a", "b"});
  expect_names({"experiments/first", "experiments/of another kind"}, {"first", "of another kind"});
}

TEST(RunsReport, NamesThatAreAlikeWhereTheyAreCutHaveNumbers) {
  expect_names({"a very long name of a run 1", "a very long name of a run 2"},
               {"a very long nam\u2026", "2: a very long \u2026"});
}

TEST(RunsReport, ALogarithmicAxisSaysSo) {
  EXPECT_EQ(count(html(runs_of({"a", "b"}, 1e-3)), "logarithmic axis"), 1) << "the loss alone";
  EXPECT_EQ(count(html(runs_of({"a", "b"})), "logarithmic axis"), 0);
}

}  // namespace
}  // namespace bie::report::test
