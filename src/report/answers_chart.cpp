#include "report/answers_chart.h"

#include <algorithm>

#include "report/plot.h"
#include "report/svg_path.h"

namespace bie::report {
namespace {

constexpr PlotSize size = {480, 320, 70, 24, 14, 46};
constexpr std::size_t most_dots = 1000;

}  // namespace

void draw(Markup& page, const Answers& answers) {
  std::vector<std::pair<double, double>> dots;
  const std::size_t rows = std::min(answers.truth.size(), answers.predicted.size());
  const std::size_t stride = std::max<std::size_t>(1, (rows + most_dots - 1) / most_dots);
  for (std::size_t i = 0; i < rows; i += stride)
    if (drawable(answers.truth[i]) && drawable(answers.predicted[i]))
      dots.emplace_back(answers.truth[i], answers.predicted[i]);
  if (dots.empty()) return;
  double low = dots[0].first, high = low;
  for (const auto& [truth, predicted] : dots) {
    low = std::min({low, truth, predicted});
    high = std::max({high, truth, predicted});
  }
  const std::string what = answers.what.empty() ? "the label" : answers.what;
  const std::string title = "Predicted and true " + what + " of the test rows";
  page.open("section", {{"class", "card"}}).element("h2", {}, "Answers").open("div", {{"class", "charts"}});
  page.open("figure", {{"class", "chart"}}).open("figcaption").element("b", {}, title);
  if (stride > 1) page.text(" one row of " + std::to_string(stride));
  page.close();
  {
    Plot plot(page, size, linear_axis(low, high, Unit::number, 5), linear_axis(low, high, Unit::number, 5), "", title);
    plot.text((plot.left() + plot.right()) / 2, plot.bottom() + 34, "tick", "middle", "true");
    page.element("path", {{"class", "range c1"},
                          {"d", SvgPath().move(plot.x(low), plot.y(low)).line(plot.x(high), plot.y(high)).text()}});
    for (const auto& [truth, predicted] : dots) {
      page.open("circle", {{"class", "dot c0"},
                           {"cx", coordinate(plot.x(truth))},
                           {"cy", coordinate(plot.y(predicted))},
                           {"r", coordinate(3)}});
      page.element("title", {}, significant(truth, 5) + " taken for " + significant(predicted, 5));
      page.close();
    }
  }
  page.close().close().close();
}

}  // namespace bie::report
