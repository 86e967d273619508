#include "report/line_chart.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "report/plot.h"
#include "report/series.h"
#include "report/svg_path.h"

namespace bie::report {
namespace {

constexpr PlotSize usual = {480, 250, 56, 64, 12, 30};
constexpr PlotSize small = {260, 120, 50, 14, 8, 24};
constexpr std::size_t most_points = 400, most_columns = 100, most_dots = 60;
constexpr double logarithmic_from = 50;  // highest to lowest value
// Sizes of the curves' labels, on a screen so narrow that their letters are enlarged.
constexpr double label_height = 17, letter_width = 9;
constexpr std::size_t most_letters = 16;
constexpr const char* ellipsis = "\u2026";

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
};

Range range_of(const LineChart& chart) {
  Range range;
  for (const Curve& curve : chart.curves)
    for (const double value : curve.y)
      if (drawable(value)) range = {std::min(range.low, value), std::max(range.high, value)};
  return range;
}

bool is_too_long(const std::string& name) { return name.size() > most_letters; }

/// The name as far as there is room for it.
std::string cut(const std::string& name) {
  if (!is_too_long(name)) return name;
  std::size_t end = most_letters - 1;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // whole characters of UTF-8
  return name.substr(0, end) + ellipsis;
}

/// "bits-8,seed-0" in parts: "bits-8", ",seed-0".
std::vector<std::string> parts_of(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if ((c == ',' || c == '/') && !parts.back().empty()) parts.emplace_back();
    parts.back() += c;
  }
  return parts;
}

/// Names that have room and tell the curves apart: without the parts that all have, where one is too long, and with a
/// number where they are still alike.
std::vector<std::string> shown_names(const LineChart& chart) {
  std::vector<std::string> names;
  for (const Curve& curve : chart.curves) names.push_back(curve.name);
  if (std::none_of(names.begin(), names.end(), is_too_long)) return names;
  std::vector<std::vector<std::string>> parts;
  for (const std::string& name : names) parts.push_back(parts_of(name));
  const auto all_have = [&](std::size_t i) {
    return std::all_of(parts.begin(), parts.end(), [&](const std::vector<std::string>& own) {
      return own.size() == parts.front().size() && i < own.size() && own[i] == parts.front()[i];
    });
  };
  std::set<std::string> seen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string name;
    for (std::size_t j = 0; j < parts[i].size(); ++j)
      if (names.size() == 1 || !all_have(j)) name += parts[i][j];
    if (name.starts_with(",") || name.starts_with("/")) name.erase(0, 1);
    names[i] = cut(name);
    if (!seen.insert(names[i]).second) names[i] = cut(std::to_string(i + 1) + ": " + name);
  }
  return names;
}

/// With the right margin that the curves' names need.
PlotSize size_of(const LineChart& chart) {
  if (chart.small) return small;
  PlotSize size = usual;
  for (const std::string& name : shown_names(chart))
    size.right = std::max(size.right, static_cast<int>(letter_width * static_cast<double>(name.size())) + 8);
  return size;
}

std::string colour(std::size_t curve) { return "c" + std::to_string(curve % 6); }

void draw_curve(Markup& page, const Plot& plot, const LineChart& chart, const std::string& css_class,
                const Curve& curve) {
  SvgPath line, dots;
  const bool show_dots = std::min(chart.epochs.size(), curve.y.size()) <= most_dots && !chart.small;
  for (const std::vector<Point>& piece : pieces(chart.epochs, curve.y, most_points)) {
    for (std::size_t i = 0; i < piece.size(); ++i) {
      const double x = plot.x(piece[i].x), y = plot.y(piece[i].y);
      i == 0 ? line.move(x, y) : line.line(x, y);
      if (show_dots || piece.size() == 1) dots.dot(x, y);
    }
  }
  page.element("path", {{"class", "curve " + css_class}, {"d", line.text()}});
  if (!dots.empty()) page.element("path", {{"class", "dots " + css_class}, {"d", dots.text()}});
}

/// The curves' names beside their last values, moved apart where they would overlap.
void draw_names(Plot& plot, const LineChart& chart) {
  struct Name {
    double y;
    std::size_t curve;
  };
  std::vector<Name> names;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const auto& y = chart.curves[i].y;
    const auto last = std::find_if(y.rbegin(), y.rend(), drawable);
    if (last != y.rend()) names.push_back({plot.y(*last), i});
  }
  std::stable_sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.y < b.y; });
  double free_from = plot.top();
  for (Name& name : names) {
    name.y = std::max(name.y, free_from);
    free_from = name.y + label_height;
  }
  double free_to = plot.bottom() - 4;
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    name->y = std::min(name->y, free_to);
    free_to = name->y - label_height;
  }
  const std::vector<std::string> shown = shown_names(chart);
  for (const Name& name : names)
    plot.text(plot.right() + 8, name.y, "name " + colour(name.curve), "start", shown[name.curve]);
}

/// Strips that light up under the pointer and say what the values there are.
void draw_columns(Markup& page, const Plot& plot, const LineChart& chart) {
  const std::size_t count = chart.epochs.size();
  const std::size_t stride = (count + most_columns - 1) / most_columns;
  const std::size_t columns = (count + stride - 1) / stride;
  const double width = (plot.right() - plot.left()) / static_cast<double>(columns);
  for (std::size_t i = 0; i < count; i += stride) {
    std::string said = "epoch " + fixed(chart.epochs[i], 0);
    for (const Curve& curve : chart.curves)
      if (i < curve.y.size() && drawable(curve.y[i]))
        said += "\n" + (curve.name.empty() ? "" : curve.name + " ") + with_unit(curve.y[i], chart.unit);
    page.open("rect",
              {{"class", "column"},
               {"x", coordinate(std::clamp(plot.x(chart.epochs[i]) - width / 2, plot.left(), plot.right() - width))},
               {"y", coordinate(plot.top())},
               {"width", coordinate(width)},
               {"height", coordinate(plot.bottom() - plot.top())}});
    page.element("title", {}, said).close();
  }
}

}  // namespace

void draw(Markup& page, const LineChart& chart) {
  Range range = range_of(chart);
  if (range.low > range.high || chart.epochs.empty()) return;
  if (chart.from_zero) range.low = std::min(range.low, 0.);
  const bool logarithmic = chart.unit != Unit::percent && range.low > 0 && range.high / range.low > logarithmic_from;
  const int wanted = chart.small ? 3 : 5;
  const Axis y = logarithmic ? log_axis(range.low, range.high, chart.unit, wanted)
                             : linear_axis(range.low, range.high, chart.unit, wanted);
  page.open("figure", {{"class", chart.small ? "chart small" : "chart"}})
      .open("figcaption")
      .element("b", {}, chart.title);
  const std::string remark =
      chart.remark + (logarithmic ? (chart.remark.empty() ? "" : ", ") + std::string("logarithmic axis") : "");
  if (!remark.empty()) page.text(" ").element("span", {}, remark);
  page.close();
  {
    const auto [first, last] = std::minmax_element(chart.epochs.begin(), chart.epochs.end());
    Plot plot(page, size_of(chart), count_axis(*first, *last, chart.small ? 4 : 6), y, chart.small ? "" : "epoch",
              chart.title + " over the epochs");
    draw_columns(page, plot, chart);
    for (std::size_t i = 0; i < chart.curves.size(); ++i) draw_curve(page, plot, chart, colour(i), chart.curves[i]);
    if (!chart.small) draw_names(plot, chart);
  }
  page.close();
}

}  // namespace bie::report
