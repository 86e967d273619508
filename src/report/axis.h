// The scale of a chart: where it begins and ends, and the round values marked on it.
#pragma once

#include <string>
#include <vector>

#include "report/number_text.h"

namespace bie::report {

struct Tick {
  double value;
  std::string text;
};

struct Axis {
  double low, high;  ///< low < high; both positive where logarithmic
  bool logarithmic;
  std::vector<Tick> ticks;  ///< ascending, within [low, high]

  /// 0 at `low`, 1 at `high`.
  double place(double value) const;
};

/// About `wanted` multiples of 1, 2 or 5 times a power of ten, beginning and ending at one. A percent axis stays
/// within 0 and 100 where the values do. Any arguments give an axis: equal ones get room on both sides.
Axis linear_axis(double low, double high, Unit unit, int wanted);

/// Marks at 1, 2 and 5 times the powers of ten, or at the powers alone where they are many. `low` is above 0.
Axis log_axis(double low, double high, Unit unit, int wanted);

/// Whole numbers, from `low` to `high` and no further.
Axis count_axis(double low, double high, int wanted);

}  // namespace bie::report
