#include "report/plot.h"

#include <utility>

#include "report/svg_path.h"

namespace bie::report {

Plot::Plot(Markup& page, PlotSize size, Axis x, Axis y, const std::string& x_name, const std::string& description)
    : page_(page), size_(size), x_(std::move(x)), y_(std::move(y)) {
  page_.open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
                     {"viewBox", "0 0 " + std::to_string(size_.width) + " " + std::to_string(size_.height)},
                     {"role", "img"},
                     {"aria-label", description}});
  SvgPath grid, axis;
  for (const Tick& tick : y_.ticks) grid.move(left(), this->y(tick.value)).across_to(right());
  page_.element("path", {{"class", "grid"}, {"d", grid.text()}});
  for (const Tick& tick : y_.ticks) text(left() - 6, this->y(tick.value), "tick", "end", tick.text);
  axis.move(left(), bottom()).across_to(right());
  for (const Tick& tick : x_.ticks) axis.move(this->x(tick.value), bottom()).up_or_down_to(bottom() + 4);
  page_.element("path", {{"class", "axis"}, {"d", axis.text()}});
  for (const Tick& tick : x_.ticks) text(this->x(tick.value), bottom() + 14, "tick", "middle", tick.text);
  if (!x_name.empty()) text(size_.width, bottom() + 14, "tick", "end", x_name);
}

Plot::~Plot() { page_.close(); }

double Plot::x(double value) const { return left() + x_.place(value) * (right() - left()); }

double Plot::y(double value) const { return bottom() - y_.place(value) * (bottom() - top()); }

void Plot::text(double x, double y, const std::string& css_class, const std::string& anchor, const std::string& text) {
  page_.element(
      "text",
      {{"class", css_class}, {"x", coordinate(x)}, {"y", coordinate(y)}, {"dy", "0.32em"}, {"text-anchor", anchor}},
      text);
}

}  // namespace bie::report
