// The numbers that a net gets of a table, and those that it gives back: in double, whatever their unit and offset.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bie/formats/table.h"
#include "tests/support/scratch.h"

namespace bie::formats::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;

std::string text_of(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

struct Scaled {
  TableForm form;
  std::vector<float> values;
  std::vector<std::string> notes;
};

/// A column of numbers with alternating classes, or as the label of a regression, all rows in training.
Scaled scaled(const std::vector<double>& column, bool label = false) {
  const Scratch scratch;
  std::string text = "x,label\n";
  for (std::size_t i = 0; i < column.size(); ++i)
    text += label ? text_of(static_cast<double>(i % 7) / 8) + "," + text_of(column[i]) + "\n"
                  : text_of(column[i]) + "," + (i % 2 ? "a" : "b") + "\n";
  write_file(scratch.path("t.csv"), text);
  const CsvText csv = load_csv(scratch.path("t.csv"));
  TableOptions options;
  options.regression = label;
  options.keep = {"x"};
  Scaled found{learn_table(csv, options).form, {}, {}};
  std::vector<std::int64_t> rows(column.size());
  std::iota(rows.begin(), rows.end(), 0);
  learn_scales(csv, rows, &found.form, &found.notes);
  found.form = parse_table(table_json(found.form));
  found.values = read_table(csv, found.form, Labels::wanted).values;
  return found;
}

/// Points of a normal distribution, in no order.
std::vector<double> normal(std::size_t count) {
  std::vector<double> points;
  for (std::size_t i = 0; i < count; ++i) {
    double low = -9, high = 9;
    const double share = (static_cast<double>(i * 617 % count) + 0.5) / static_cast<double>(count);
    for (int step = 0; step < 60; ++step)
      ((std::erfc(-(low + high) / std::sqrt(8.0)) / 2 < share) ? low : high) = (low + high) / 2;
    points.push_back(low);
  }
  return points;
}

TEST(TableScale, UnitAndOffsetMakeNoDifference) {
  const std::vector<double> points = normal(1000);
  const Scaled plain = scaled(points);
  for (const auto& [unit, offset] : {std::pair{1.0, 1e6}, {1.0, 1e7}, {1e-6, 1.0}, {1e12, -3e14}, {1e-20, 0.0}}) {
    std::vector<double> moved;
    for (const double point : points) moved.push_back(unit * point + offset);
    const Scaled other = scaled(moved);
    double worst = 0;
    for (std::size_t i = 0; i < points.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(other.values[i]) - static_cast<double>(plain.values[i])));
    EXPECT_LT(worst, 1e-5) << unit << " and " << offset;
  }
}

TEST(TableScale, AHeavyTailIsBent) {
  for (const double sigma : {1.0, 1.5, 2.0})
    for (const double offset : {0.0, 1e6}) {
      const std::vector<double> points = normal(2000);
      std::vector<double> column;
      for (const double point : points) column.push_back(std::exp(sigma * point) + offset);
      const Scaled found = scaled(column);
      ASSERT_TRUE(found.form.columns[0].curve) << sigma;
      std::vector<double> far;
      for (std::size_t i = 0; i < points.size(); ++i)
        if (std::abs(points[i]) < 2) far.push_back(std::abs(static_cast<double>(found.values[i]) - points[i]));
      EXPECT_LT(*std::max_element(far.begin(), far.end()), 0.25) << sigma << " " << offset << ": nearly the logarithm";
    }
}

TEST(TableScale, OtherShapesStayAsTheyAre) {
  std::vector<double> rare(1000), uniform, exponential;
  for (std::size_t i = 0; i < rare.size(); i += 100) rare[i] = 1;
  for (std::size_t i = 0; i < 1000; ++i) uniform.push_back((static_cast<double>(i) + 0.5) / 1000);
  for (const double u : uniform) exponential.push_back(-std::log(1 - u));
  for (const auto& column : {rare, uniform, exponential, normal(1000)})
    EXPECT_FALSE(scaled(column).form.columns[0].curve);
}

TEST(TableScale, AConstantColumnSaysNothing) {
  const Scaled found = scaled(std::vector<double>(50, 1e9 / 3));
  EXPECT_EQ(found.form.columns[0].scales[0], 0);
  EXPECT_TRUE(std::all_of(found.values.begin(), found.values.end(), [](float value) { return value == 0; }));
}

TEST(TableScale, AHopelessColumnIsNamed) {
  std::vector<double> column(2000, 1);
  for (std::size_t i = 0; i < column.size(); i += 2) column[i] = 2;
  column[17] = 1e30;
  const Scaled found = scaled(column);
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_NE(found.notes[0].find("\"x\" has the value 1e+30"), std::string::npos) << found.notes[0];
  EXPECT_TRUE(scaled(normal(2000)).notes.empty());
}

TEST(TableScale, ScalesAreThoseOfTheTrainingRows) {
  const Scratch scratch;
  write_file(scratch.path("t.csv"), "x,c,price\n1,u,10\n3,v,30\n1000,u,70000\n");
  const CsvText csv = load_csv(scratch.path("t.csv"));
  TableOptions options;
  options.regression = true;
  TableForm form = learn_table(csv, options).form;
  std::vector<std::string> notes;
  learn_scales(csv, {0, 1}, &form, &notes);
  EXPECT_EQ(form.columns[0].mean, 2);
  EXPECT_EQ(form.mean, 20);
  EXPECT_EQ(form.scale, 10);
  EXPECT_EQ(read_table(csv, form, Labels::wanted).values, (std::vector<float>{-1, 1, -1, 1, -1, 1, 998, 1, -1}));
  expect_sentence(refusal([&] { learn_scales(csv, {0}, &form, &notes); }), scratch.path("t.csv"),
                  "all labels are equal");
}

TEST(TableScale, AnswersHaveTheDigitsOfTheirLabels) {
  std::vector<double> labels;
  for (const double point : normal(500)) labels.push_back(1e9 + 3 * point);
  const TableForm form = scaled(labels, /*label=*/true).form;
  double worst = 0;
  for (const double label : labels) {
    const auto output = static_cast<float>(form.learnt(label));  // what a perfect net answers
    worst = std::max(worst, std::abs(std::stod(answer_text(form, form.answer(output))) - label));
  }
  EXPECT_LT(worst, 1e-4);
  const TableForm small = scaled({1, 2, 3, 4, 5, 6}, /*label=*/true).form;
  EXPECT_EQ(answer_text(small, 2.5), "2.5");
}

TEST(TableScale, ALabelWithAHeavyTailIsBentAndGivenBack) {
  std::vector<double> labels;
  for (const double point : normal(2000)) labels.push_back(std::exp(1.2 * point));
  const TableForm form = scaled(labels, /*label=*/true).form;
  ASSERT_TRUE(form.curve);
  for (const double label : {labels[0], labels[7], labels[1999]})
    EXPECT_NEAR(form.answer(form.learnt(label)), label, 1e-9 * label);
  EXPECT_LT(form.answer(1e6), 10 * form.most) << "an answer stays near the labels that were seen";
}

TEST(TableScale, OldFormsReadAsTheyDid) {
  const std::string old =
      R"({"checksum":7,"columns":[{"mean":2.0,"name":"x"},{"mean":0.0,"name":"c","values":["u","v"]}],"id":"","label":"y",)"
      R"("label_place":-1,"left_out":[],"mean":1.0,"missing":"refuse","named":true,"regression":false,"scale":2.0,)"
      R"("test_share":0.2})";
  const TableForm form = parse_table(old);
  EXPECT_EQ(form.version, 1);
  EXPECT_EQ(table_json(form), old);
  EXPECT_EQ(form.split.kind, SplitKind::order);
  const Scratch scratch;
  write_file(scratch.path("t.csv"), "x,c\n5,v\n");
  EXPECT_EQ(read_table(load_csv(scratch.path("t.csv")), form, Labels::optional).values, (std::vector<float>{5, 0, 1}));
}

}  // namespace
}  // namespace bie::formats::test
