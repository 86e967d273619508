// Rows for training and testing: shuffled, in order, by groups, by time.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "bie/formats/table.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using Indices = std::vector<std::int64_t>;

Indices counted(std::int64_t rows) {
  Indices all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

SplitRows split(const SplitRule& rule, std::int64_t rows, const Indices& labels,
                const std::vector<std::string>& keys = {}, double share = 0.2) {
  TableForm form;
  form.split = rule;
  return split_table(form, share, counted(rows), labels, keys, "t.csv", "testing");
}

TEST(TableSplit, AShuffleIsStratifiedAndOfItsSeed) {
  Indices labels;
  for (int i = 0; i < 200; ++i) labels.push_back(i >= 150);  // sorted by class
  const SplitRows found = split({SplitKind::shuffle}, 200, labels), again = split({SplitKind::shuffle}, 200, labels),
                  other = split({SplitKind::shuffle, 1}, 200, labels);
  EXPECT_EQ(found.other, again.other);
  EXPECT_NE(found.other, other.other);
  const auto of_second = std::count_if(found.other.begin(), found.other.end(), [](auto row) { return row >= 150; });
  EXPECT_EQ(found.other.size(), 40u);
  EXPECT_EQ(of_second, 10);
  std::set<std::int64_t> gaps;
  for (std::size_t i = 1; i < found.other.size(); ++i) gaps.insert(found.other[i] - found.other[i - 1]);
  EXPECT_GT(gaps.size(), 4u) << "not at equal distances";
  Indices all = found.train;
  all.insert(all.end(), found.other.begin(), found.other.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, counted(200));
}

/// The rows for testing of every fold.
std::vector<Indices> folds(const SplitRule& rule, int count, std::int64_t rows, const Indices& labels,
                           const std::vector<std::string>& keys = {}) {
  TableForm form;
  form.split = rule;
  std::vector<Indices> found;
  for (int fold = 0; fold < count; ++fold) {
    SplitRows parts = fold_table(form, count, fold, counted(rows), labels, keys, "t.csv");
    Indices all = parts.train;
    all.insert(all.end(), parts.other.begin(), parts.other.end());
    std::sort(all.begin(), all.end());
    EXPECT_EQ(all, counted(rows));
    found.push_back(std::move(parts.other));
  }
  Indices all;
  for (const Indices& fold : found) all.insert(all.end(), fold.begin(), fold.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, counted(rows)) << "each row is in one fold";
  return found;
}

TEST(TableSplit, FoldsHaveAsManyRowsOfEachClass) {
  Indices labels;
  for (int i = 0; i < 103; ++i) labels.push_back(i >= 80);
  for (const SplitKind kind : {SplitKind::order, SplitKind::shuffle})
    for (const int count : {2, 5, 7})
      for (const Indices& fold : folds({kind}, count, 103, labels)) {
        const auto of_second = std::count_if(fold.begin(), fold.end(), [](auto row) { return row >= 80; });
        EXPECT_LE(std::abs(of_second - 23.0 / count), 1);
        EXPECT_LE(std::abs(static_cast<double>(fold.size()) - 103.0 / count), 2);
      }
  EXPECT_NE(folds({SplitKind::shuffle}, 5, 103, labels), folds({SplitKind::shuffle, 1}, 5, 103, labels));
}

TEST(TableSplit, FoldsHaveWholeGroups) {
  std::vector<std::string> keys;
  for (int i = 0; i < 60; ++i) keys.push_back(std::to_string(i % 13));
  for (const Indices& fold : folds({SplitKind::group, 3, "who"}, 4, 60, {}, keys)) {
    std::set<std::string> own;
    for (const std::int64_t row : fold) own.insert(keys[static_cast<std::size_t>(row)]);
    std::size_t rows = 0;
    for (const std::string& key : keys) rows += own.count(key);
    EXPECT_EQ(rows, fold.size());
    EXPECT_NEAR(static_cast<double>(fold.size()), 15, 5);
  }
}

TEST(TableSplit, FoldsThatCannotBe) {
  TableForm form;
  const auto said = [&](SplitKind kind, int count, const Indices& labels, const std::vector<std::string>& keys) {
    form.split.kind = kind;
    try {
      fold_table(form, count, 0, counted(6), labels, keys, "t.csv");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(said(SplitKind::time, 2, {}, {"1", "2", "3", "4", "5", "6"}).find("by time"), std::string::npos);
  EXPECT_NE(said(SplitKind::group, 3, {}, {"a", "a", "a", "b", "b", "b"}).find("got 2 groups"), std::string::npos);
  EXPECT_NE(said(SplitKind::shuffle, 3, {0, 0, 0, 0, 1, 1}, {}).find("a class of 2 rows"), std::string::npos);
}

TEST(TableSplit, OrderTakesEveryFifthRow) { EXPECT_EQ(split({SplitKind::order}, 10, {}).other, (Indices{4, 9})); }

TEST(TableSplit, GroupsStayTogether) {
  std::vector<std::string> keys;
  for (int i = 0; i < 100; ++i) keys.push_back("patient" + std::to_string(i % 20));
  const SplitRows found = split({SplitKind::group, 0, "patient"}, 100, {}, keys);
  EXPECT_EQ(found.other.size(), 20u);
  std::set<std::string> inside, outside;
  for (const auto row : found.train) inside.insert(keys[static_cast<std::size_t>(row)]);
  for (const auto row : found.other) outside.insert(keys[static_cast<std::size_t>(row)]);
  EXPECT_EQ(inside.size() + outside.size(), 20u);
  const std::vector<std::string> one(10, "a");
  expect_sentence(refusal([&] {
                    split({SplitKind::group, 0, "patient"}, 10, {}, one);
                  }),
                  "t.csv", "expected groups of rows, got one \"patient\" for all rows");
}

TEST(TableSplit, TheLatestRowsAreForTesting) {
  std::vector<std::string> years, days;
  for (int i = 0; i < 10; ++i) {
    years.push_back(std::to_string(100 - 10 * i));  // 100 and 90: numbers, not texts
    days.push_back("2024-01-0" + std::to_string(i % 5 + 1));
  }
  EXPECT_EQ(split({SplitKind::time, 0, "year"}, 10, {}, years).other, (Indices{0, 1}));
  EXPECT_EQ(split({SplitKind::time, 0, "day"}, 10, {}, days, 0.1).other, (Indices{4, 9}))
      << "equal times stay together";
  days[3] = "31/1/2024";
  expect_sentence(refusal([&] {
                    split({SplitKind::time, 0, "day"}, 10, {}, days);
                  }),
                  "t.csv", "expected a number or a date such as 2024-01-31 as a time, got \"31/1/2024\"");
}

}  // namespace
}  // namespace bie::formats::test
