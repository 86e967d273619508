// One labelled dot for each thing that is compared.
#pragma once

#include <string>
#include <vector>

#include "report/markup.h"
#include "report/number_text.h"

namespace bie::report {

struct Dot {
  std::string name;
  double x;                 ///< above 0
  double y, y_low, y_high;  ///< the bar through the dot goes from y_low to y_high
};

/// The x axis is logarithmic.
struct ScatterChart {
  std::string title, x_name;
  Unit x_unit = Unit::number, y_unit = Unit::number;
  std::vector<Dot> dots;
};

/// A figure; nothing where no dot has both values.
void draw(Markup& page, const ScatterChart& chart);

}  // namespace bie::report
