// How well each class is told apart.
#pragma once

#include <vector>

#include "report/run_report.h"

namespace bie::report {

/// Scores of one class; NaN where the divisor is 0.
struct ClassScore {
  std::uint64_t samples;  ///< of the class
  double precision;       ///< share of those taken for the class that are of it
  double recall;          ///< share of the class that was taken for it
  double f1;              ///< 2 precision recall / (precision + recall)
};

/// One for each class; none for counts that are not classes x classes.
std::vector<ClassScore> class_scores(const Confusion& confusion);

}  // namespace bie::report
