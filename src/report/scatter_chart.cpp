#include "report/scatter_chart.h"

#include <algorithm>
#include <array>

#include "report/plot.h"
#include "report/svg_path.h"

namespace bie::report {
namespace {

constexpr PlotSize size = {480, 270, 60, 24, 14, 46};

struct Box {
  double left, top, right, bottom;
  bool overlaps(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

struct Label {
  double x, y;
  const char* anchor;
  Box box;
};

/// The four places around a dot and its bar, the best first. Widths are those of the larger letters of a narrow screen.
std::array<Label, 4> places(const Plot& plot, const Dot& dot) {
  constexpr double letter = 8, height = 17, off = 10;
  const double x = plot.x(dot.x), y = plot.y(dot.y), width = letter * static_cast<double>(dot.name.size());
  const auto label = [&](double label_x, double label_y, const char* anchor, double left) {
    return Label{label_x, label_y, anchor, {left, label_y - height / 2, left + width, label_y + height / 2}};
  };
  return {label(x + off, y, "start", x + off), label(x - off, y, "end", x - off - width),
          label(x, plot.y(dot.y_high) - 1.5 * off, "middle", x - width / 2),
          label(x, plot.y(dot.y_low) + 1.5 * off, "middle", x - width / 2)};
}

/// Names beside their dots, where they hide neither a dot nor another name as far as there is room.
void draw_names(Plot& plot, const std::vector<Dot>& dots) {
  std::vector<Box> taken;
  for (const Dot& dot : dots) {
    constexpr double reach = 5;
    const double x = plot.x(dot.x);
    taken.push_back({x - reach, plot.y(dot.y_high) - reach, x + reach, plot.y(dot.y_low) + reach});
  }
  for (std::size_t i = 0; i < dots.size(); ++i) {
    const auto labels = places(plot, dots[i]);
    const auto free = [&](const Label& label) {
      const Box& box = label.box;
      const bool inside = box.left > plot.left() && box.right < size.width && box.top > 0 && box.bottom < plot.bottom();
      return inside && std::none_of(taken.begin(), taken.end(), [&](const Box& b) { return b.overlaps(box); });
    };
    const auto found = std::find_if(labels.begin(), labels.end(), free);
    const Label& label = found == labels.end() ? labels[0] : *found;
    taken.push_back(label.box);
    plot.text(label.x, label.y, "name ink", label.anchor, dots[i].name);
  }
}

}  // namespace

void draw(Markup& page, const ScatterChart& chart) {
  std::vector<Dot> dots;
  for (Dot dot : chart.dots) {
    if (!drawable(dot.x) || dot.x <= 0 || !drawable(dot.y)) continue;
    if (!drawable(dot.y_low) || !drawable(dot.y_high)) dot.y_low = dot.y_high = dot.y;
    dots.push_back(dot);
  }
  if (dots.empty()) return;
  // From left to right, so that a name gives way to those before it.
  std::stable_sort(dots.begin(), dots.end(), [](const Dot& a, const Dot& b) { return a.x < b.x; });
  double low = dots[0].y_low, high = dots[0].y_high;
  for (const Dot& dot : dots) low = std::min(low, dot.y_low), high = std::max(high, dot.y_high);

  page.open("figure", {{"class", "chart"}}).open("figcaption").element("b", {}, chart.title).close();
  {
    Plot plot(page, size, log_axis(dots.front().x, dots.back().x, chart.x_unit, 6),
              linear_axis(low, high, chart.y_unit, 5), "", chart.title);
    plot.text((plot.left() + plot.right()) / 2, plot.bottom() + 34, "tick", "middle", chart.x_name);
    for (const Dot& dot : dots) {
      const double x = plot.x(dot.x);
      page.open("g");
      page.element("title", {},
                   dot.name + ": " + with_unit(dot.y, chart.y_unit) + ", " + with_unit(dot.x, chart.x_unit));
      page.element("path", {{"class", "range c0"},
                            {"d", SvgPath().move(x, plot.y(dot.y_low)).up_or_down_to(plot.y(dot.y_high)).text()}});
      page.element(
          "circle",
          {{"class", "dot c0"}, {"cx", coordinate(x)}, {"cy", coordinate(plot.y(dot.y))}, {"r", coordinate(5)}});
      page.close();
    }
    draw_names(plot, dots);
  }
  page.close();
}

}  // namespace bie::report
