// A page shows what a report holds, leaves out what it does not, and is well-formed in either case.
#include "report/run_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/report/page_check.h"

namespace bie::report::test {
namespace {

const std::string hostile = "</style><script>alert(\"1\")</script>&amp;'\x01\xff层";

/// Every part filled; `epochs` of them.
RunReport full(int epochs) {
  RunReport report;
  report.title = "LeNet";
  report.when = "today";
  report.command = "bie train";
  report.notes = {"resumed after step 3"};
  report.results = {{"test accuracy", "98 %"}};
  for (int i = 1; i <= epochs; ++i)
    report.epochs.push_back(
        {i, 2.0 / i, 1 - 0.5 / i, 1 - 0.6 / i, 1e-3 * (1 - 1.0 * i / epochs), 0.1, 1.5, 0.4 - 0.4 / i});
  for (const char* name : {"conv", "fc"}) {
    Layer layer{name, "Q4Linear", 4, 4, {16, 32}, 256, {-8.5, 7.5, {}}, {}, {}};
    layer.weights.counts.assign(16, 3);
    for (const Epoch& epoch : report.epochs) {
      layer.step_sizes.push_back(0.1 + 0.01 / static_cast<double>(epoch.number));
      layer.flipped.push_back(epoch.flipped);
    }
    report.layers.push_back(layer);
  }
  report.confusion = {{"cat", "dog"}, {7, 1, 0, 9}};
  Mistake& mistake = report.mistakes.emplace_back();
  mistake.picture = {2, 2, 1, {0, 80, 160, 255}};
  mistake.truth = "cat";
  mistake.predicted = "dog";
  mistake.confidence = 0.97;
  report.ranks = {{0, "north", "cpu", 300, 2}, {1, "south", "cuda:0", 300, 1.5}};
  report.configuration = {{"epochs", std::to_string(epochs)}};
  report.machine = {{"CPU", "EPYC"}};
  return report;
}

TEST(RunReport, AFullPageHasEverySection) {
  const std::string page = html(full(12));
  EXPECT_TRUE(well_formed(page));
  for (const char* heading : {"Training", "Layers", "Confusion", "Worst mistakes", "Ranks", "Configuration", "Machine"})
    EXPECT_EQ(count(page, std::string("<h2>") + heading + "</h2>"), 1) << heading;
  EXPECT_TRUE(holds(page, "Precision, recall and F1 of every class"));
  // Six charts of training; of each layer weights, step sizes and flips.
  EXPECT_EQ(count(page, "<svg "), 6 + 2 * 3);
  EXPECT_TRUE(holds(page, "best 95.00\u00a0% after epoch 12"));
  EXPECT_TRUE(holds(page, "<b>cat</b> taken for <b>dog</b>, 97.00\u00a0%"));
  EXPECT_TRUE(holds(page, "resumed after step 3"));
  EXPECT_TRUE(holds(page, "south") && holds(page, ">200<"));
  EXPECT_EQ(html(full(12)), page);
}

TEST(RunReport, WithoutAnythingThereIsATitle) {
  const std::string page = html(RunReport{});
  EXPECT_TRUE(well_formed(page));
  EXPECT_FALSE(holds(page, "<h2>"));
  EXPECT_FALSE(holds(page, "<svg "));
  EXPECT_TRUE(holds(page, "<h1>Report</h1>"));
}

TEST(RunReport, EveryPartMayBeLeftOut) {
  const auto without = [](auto clear) {
    RunReport report = full(3);
    clear(report);
    return html(report);
  };
  const std::string no_epochs = without([](RunReport& r) { r.epochs.clear(); });
  EXPECT_TRUE(well_formed(no_epochs));
  EXPECT_FALSE(holds(no_epochs, "<h2>Training</h2>"));
  EXPECT_FALSE(holds(no_epochs, "Step size"));
  EXPECT_TRUE(holds(no_epochs, "<h2>Layers</h2>"));
  const std::string no_layers = without([](RunReport& r) { r.layers.clear(); });
  EXPECT_TRUE(well_formed(no_layers));
  EXPECT_FALSE(holds(no_layers, "<h2>Layers</h2>"));
  const std::string no_flips = without([](RunReport& r) {
    for (Epoch& epoch : r.epochs) epoch.flipped = unknown;
    for (Layer& layer : r.layers) layer.flipped.clear();
  });
  EXPECT_TRUE(well_formed(no_flips));
  EXPECT_FALSE(holds(no_flips, "flipped"));
}

TEST(RunReport, EpochsThatKnowNothingShowNothing) {
  RunReport report;
  report.epochs.resize(5);
  report.layers.resize(2);
  report.layers[0].step_sizes = {unknown, unknown};
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_FALSE(holds(page, "<svg "));
  EXPECT_FALSE(holds(page, "<h2>Training</h2>"));
}

TEST(RunReport, NoNumberBreaksAChart) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double odd : {unknown, infinity, -infinity, 0.0, -1.0, 1e300, -1e299, 1e-320, 1e-12, 3e38}) {
    RunReport report = full(6);
    report.epochs[2] = {3, odd, odd, odd, odd, odd, odd, odd};
    report.layers[0].step_sizes[2] = odd;
    report.layers[0].weights.low = odd;
    report.layers[1].weights.high = odd;
    report.mistakes[0].confidence = odd;
    EXPECT_TRUE(well_formed(html(report))) << odd;
    for (Epoch& epoch : report.epochs) epoch = {epoch.number, odd, odd, odd, odd, odd, odd, odd};
    EXPECT_TRUE(well_formed(html(report))) << odd;
  }
}

TEST(RunReport, ARateThatEndsNearZeroHasALinearAxis) {
  RunReport report;
  for (int i = 1; i <= 3; ++i) report.epochs.push_back({.number = i, .rate = i < 3 ? 4e-3 : 1e-10});
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_TRUE(holds(page, ">0.002</text>"));
  EXPECT_FALSE(holds(page, "e-10</text>"));
}

TEST(RunReport, AFactWithoutAValueIsLeftOut) {
  RunReport report;
  report.machine = {{"isa_note", ""}};
  EXPECT_FALSE(holds(html(report), "<h2>Machine</h2>"));
  report.machine.push_back({"CPU", "EPYC"});
  EXPECT_TRUE(holds(html(report), "<h2>Machine</h2>"));
  EXPECT_FALSE(holds(html(report), "isa_note"));
}

TEST(RunReport, OneEpochIsADot) {
  const std::string page = html(full(1));
  EXPECT_TRUE(well_formed(page));
  EXPECT_TRUE(holds(page, "class=\"dots"));
}

TEST(RunReport, EpochsMayBeginLateAndHaveGaps) {
  RunReport report = full(4);
  for (Epoch& epoch : report.epochs) epoch.number = 1000 + epoch.number * epoch.number;
  EXPECT_TRUE(well_formed(html(report)));
}

TEST(RunReport, TenThousandEpochsStayReadable) {
  const std::string page = html(full(10000));
  EXPECT_TRUE(well_formed(page));
  EXPECT_LT(page.size(), 600000u);
  EXPECT_TRUE(holds(page, "One epoch of 50 in numbers"));
  EXPECT_TRUE(holds(page, "<td class=\"number\">10000</td>"));
}

TEST(RunReport, HostileTextsStayTexts) {
  RunReport report = full(3);
  report.title = report.when = report.command = report.notes[0] = hostile;
  report.results = report.configuration = report.machine = {{hostile, hostile}};
  for (Layer& layer : report.layers) layer.name = layer.kind = hostile;
  report.confusion.classes = {hostile, hostile};
  report.mistakes[0].truth = report.mistakes[0].predicted = hostile;
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_FALSE(holds(page, "<script"));
  EXPECT_EQ(count(page, "</style>"), 1);
  EXPECT_FALSE(holds(page, "\x01"));
  EXPECT_TRUE(holds(page, "层"));
}

TEST(RunReport, WhatDoesNotFitTogetherIsLeftOut) {
  RunReport report = full(3);
  report.confusion.counts.pop_back();
  report.mistakes[0].picture.pixels.pop_back();
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_FALSE(holds(page, "<h2>Confusion</h2>"));
  EXPECT_FALSE(holds(page, "<h2>Worst mistakes</h2>"));
  report.confusion = {{}, {1}};
  EXPECT_FALSE(holds(html(report), "<h2>Confusion</h2>"));
  report.confusion = {{"a", "b"}, {0, 0, 0, 0}};
  EXPECT_FALSE(holds(html(report), "<h2>Confusion</h2>"));
}

TEST(RunReport, OfManyClassesThePairsAreListed) {
  RunReport report;
  constexpr std::size_t classes = 1000;
  for (std::size_t i = 0; i < classes; ++i) report.confusion.classes.push_back("class " + std::to_string(i));
  report.confusion.counts.assign(classes * classes, 0);
  for (std::size_t i = 0; i < classes; ++i) report.confusion.counts[i * classes + i] = 9;
  const std::string right = html(report);
  EXPECT_TRUE(well_formed(right));
  EXPECT_TRUE(holds(right, "No sample was taken for another class."));
  report.confusion.counts[3 * classes + 7] = 6;
  report.confusion.counts[4 * classes + 8] = 1;
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_LT(page.size(), 50000u);
  EXPECT_LT(page.find("<td class=\"words\">class 3</td><td class=\"words\">class 7</td>"), page.find("class 8</td>"));
}

TEST(RunReport, AClassWithoutImagesHasNoShare) {
  RunReport report;
  report.confusion = {{"cat", "dog"}, {0, 0, 2, 2}};
  const std::string page = html(report);
  EXPECT_TRUE(well_formed(page));
  EXPECT_TRUE(holds(page, "<td class=\"number\">\u2013</td>"));
  EXPECT_TRUE(holds(page, "<td class=\"number\">50.00\u00a0%</td>"));
}

TEST(RunReport, HistogramsOfAnyWidth) {
  for (const std::size_t bins : {1, 2, 16, 64, 65, 256, 5000}) {
    RunReport report;
    report.layers.resize(1);
    report.layers[0].weights = {-1, 1, std::vector<std::uint64_t>(bins, 1)};
    report.layers[0].weights.counts[bins / 2] = std::numeric_limits<std::uint64_t>::max();
    const std::string page = html(report);
    EXPECT_TRUE(well_formed(page)) << bins;
    EXPECT_EQ(count(page, "<svg "), 1);
  }
}

}  // namespace
}  // namespace bie::report::test
