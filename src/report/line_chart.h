// Curves over the epochs of a run.
#pragma once

#include <string>
#include <vector>

#include "report/markup.h"
#include "report/number_text.h"

namespace bie::report {

struct Curve {
  std::string name;  ///< stands at the curve's end
  std::vector<double> y;
};

struct LineChart {
  std::string title = {};
  Unit unit = Unit::number;
  std::vector<double> epochs = {};
  std::vector<Curve> curves = {};
  std::string remark = {};  ///< beside the title, such as the best value
  bool from_zero = false;   ///< the axis begins at 0 where the values do not go below
  bool small = false;       ///< one of many: less room, no names at the curves
};

/// A figure; nothing where no curve has a value. Positive values that span more than a factor of 50 are drawn on a
/// logarithmic axis. The pointer shows a point's value.
void draw(Markup& page, const LineChart& chart);

}  // namespace bie::report
