#include "report/comparison_report.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "report/page.h"
#include "report/scatter_chart.h"
#include "report/table.h"

namespace bie::report {
namespace {

struct Accuracy {
  double mean = unknown, low = unknown, high = unknown;
};

/// Mean, least and greatest accuracy over the seeds that have a value.
Accuracy accuracy(const Width& width) {
  std::vector<double> known;
  std::copy_if(width.accuracies.begin(), width.accuracies.end(), std::back_inserter(known), drawable);
  if (known.empty()) return {};
  const auto [low, high] = std::minmax_element(known.begin(), known.end());
  return {std::accumulate(known.begin(), known.end(), 0.0) / static_cast<double>(known.size()), *low, *high};
}

/// "20.7 µs (3.51x)": how many times faster than the first.
std::string time_text(double seconds, double first) {
  const std::string text = with_unit(seconds, Unit::seconds);
  return drawable(seconds) && drawable(first) && seconds > 0 ? text + " (" + fixed(first / seconds, 2) + "\u00d7)"
                                                             : text;
}

void draw_widths(Markup& page, const std::vector<Width>& widths) {
  std::vector<std::vector<std::string>> rows;
  for (const Width& width : widths) {
    const auto [mean, low, high] = accuracy(width);
    const bool range = width.accuracies.size() > 1 && drawable(mean);
    rows.push_back({width.name, with_unit(width.quantised, Unit::percent), with_unit(mean, Unit::percent),
                    range ? fixed(100 * low, 2) + " to " + fixed(100 * high, 2) : "",
                    with_unit(width.flipped, Unit::percent), width.bytes == 0 ? no_value : grouped(width.bytes),
                    time_text(width.seconds_1, widths[0].seconds_1),
                    time_text(width.seconds_256, widths[0].seconds_256)});
  }
  draw_table(page, "bit widths",
             {{"bits"},
              {"quantised", true},
              {"test accuracy", true},
              {"range of seeds", true},
              {"flipped", true},
              {"file bytes", true},
              {"time of an image", true},
              {"in a batch of 256", true}},
             rows);
}

ScatterChart accuracy_against(const std::vector<Width>& widths, const std::string& title, const std::string& x_name,
                              Unit unit, double (*x)(const Width&)) {
  ScatterChart chart{title, x_name, unit, Unit::percent, {}};
  for (const Width& width : widths) {
    const auto [mean, low, high] = accuracy(width);
    chart.dots.push_back({width.name + " bit", x(width), mean, low, high});
  }
  return chart;
}

}  // namespace

std::string html(const ComparisonReport& report) {
  const auto& widths = report.widths;
  Markup page;
  begin_page(page, report.title, report.when, report.command);
  if (!widths.empty()) {
    page.open("section", {{"class", "card"}}).element("h2", {}, "Bit widths");
    draw_widths(page, widths);
    page.open("div", {{"class", "charts"}});
    draw(page, accuracy_against(widths, "Test accuracy against size", "saved file", Unit::bytes,
                                [](const Width& w) { return static_cast<double>(w.bytes); }));
    draw(page, accuracy_against(widths, "Test accuracy against time", "one image at a time", Unit::seconds,
                                [](const Width& w) { return w.seconds_1; }));
    page.close().close();
  }
  draw_notes(page, report.notes);
  draw_circumstances(page, report.configuration, report.machine);
  return end_page(page);
}

}  // namespace bie::report
