#include "report/histogram_chart.h"

#include <algorithm>
#include <numeric>

#include "report/plot.h"
#include "report/svg_path.h"

namespace bie::report {
namespace {

constexpr PlotSize size = {260, 120, 50, 14, 8, 24};
constexpr double widest_bar = 40;
// More bars than this are drawn as one outline: single ones would be too thin to point at.
constexpr std::size_t most_bars = 64;
// Few bins have their values marked, more a round scale.
constexpr std::size_t most_marked = 4;

double middle(const Histogram& histogram, std::size_t bin) {
  const double width = (histogram.high - histogram.low) / static_cast<double>(histogram.counts.size());
  return histogram.low + (static_cast<double>(bin) + 0.5) * width;
}

Axis value_axis(const Histogram& histogram) {
  Axis axis = linear_axis(histogram.low, histogram.high, Unit::number, 5);
  if (histogram.counts.size() <= most_marked) {
    axis.ticks.clear();
    for (std::size_t i = 0; i < histogram.counts.size(); ++i)
      axis.ticks.push_back({middle(histogram, i), significant(middle(histogram, i), 3)});
  }
  axis.low = histogram.low;
  axis.high = histogram.high;
  std::erase_if(axis.ticks, [&](const Tick& tick) { return tick.value < axis.low || tick.value > axis.high; });
  return axis;
}

void draw_bars(Markup& page, const Plot& plot, const Histogram& histogram, double total) {
  const double width = (plot.right() - plot.left()) / static_cast<double>(histogram.counts.size());
  const double bar = std::min(width - std::min(2., width / 5), widest_bar);
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    if (histogram.counts[i] == 0) continue;
    const double share = static_cast<double>(histogram.counts[i]) / total, top = plot.y(share);
    page.open("rect", {{"class", "bar"},
                       {"x", coordinate(plot.left() + (static_cast<double>(i) + 0.5) * width - bar / 2)},
                       {"y", coordinate(top)},
                       {"width", coordinate(bar)},
                       {"height", coordinate(plot.bottom() - top)}});
    page.element("title", {},
                 significant(middle(histogram, i), 4) + ": " + grouped(histogram.counts[i]) + ", " +
                     with_unit(share, Unit::percent));
    page.close();
  }
}

void draw_outline(Markup& page, const Plot& plot, const Histogram& histogram, double total) {
  const double width = (plot.right() - plot.left()) / static_cast<double>(histogram.counts.size());
  SvgPath outline;
  outline.move(plot.left(), plot.bottom());
  for (std::size_t i = 0; i < histogram.counts.size(); ++i)
    outline.up_or_down_to(plot.y(static_cast<double>(histogram.counts[i]) / total))
        .across_to(plot.left() + static_cast<double>(i + 1) * width);
  outline.up_or_down_to(plot.bottom());
  page.element("path", {{"class", "bar"}, {"d", outline.text()}});
}

}  // namespace

void draw(Markup& page, const std::string& title, const Histogram& histogram) {
  const double total = std::accumulate(histogram.counts.begin(), histogram.counts.end(), 0.0);
  const bool range = drawable(histogram.low) && drawable(histogram.high) && histogram.low < histogram.high;
  if (total == 0 || !range) return;
  const auto most = static_cast<double>(*std::max_element(histogram.counts.begin(), histogram.counts.end()));
  page.open("figure", {{"class", "chart small"}}).open("figcaption").element("b", {}, title).close();
  {
    const Plot plot(page, size, value_axis(histogram), linear_axis(0, most / total, Unit::percent, 3), "", title);
    histogram.counts.size() <= most_bars ? draw_bars(page, plot, histogram, total)
                                         : draw_outline(page, plot, histogram, total);
  }
  page.close();
}

}  // namespace bie::report
