// The frame of a chart: grid lines, tick values, and the place of a point on it.
#pragma once

#include <string>

#include "report/axis.h"
#include "report/markup.h"

namespace bie::report {

/// Lengths of a chart in its own units: pixels where it is shown 1:1.
struct PlotSize {
  int width, height, left, right, top, bottom;  ///< the last four are margins around the plot
};

class Plot {
 public:
  /// Opens <svg> and draws both axes; `x_name` stands in the right margin.
  Plot(Markup& page, PlotSize size, Axis x, Axis y, const std::string& x_name, const std::string& description);
  ~Plot();
  Plot(const Plot&) = delete;
  Plot& operator=(const Plot&) = delete;

  double x(double value) const;
  double y(double value) const;
  double left() const { return size_.left; }
  double right() const { return size_.width - size_.right; }
  double top() const { return size_.top; }
  double bottom() const { return size_.height - size_.bottom; }

  void text(double x, double y, const std::string& css_class, const std::string& anchor, const std::string& text);

 private:
  Markup& page_;
  PlotSize size_;
  Axis x_, y_;
};

}  // namespace bie::report
