// One net at several bit widths as one HTML page; see run_report.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/facts.h"

namespace bie::report {

/// One bit width.
struct Width {
  std::string name;                ///< "8", "1*"
  double quantised = unknown;      ///< share of all weights
  std::vector<double> accuracies;  ///< on the test images, one a seed, between 0 and 1
  double flipped = unknown;        ///< share of binary weights whose sign differs from the start's
  std::uint64_t bytes = 0;         ///< of the saved file; 0: not known
  double seconds_1 = unknown;      ///< an image, in a batch of one
  double seconds_256 = unknown;    ///< an image, in a batch of 256
};

/// Every part may be left empty. The first width is the one that times and sizes are compared with.
struct ComparisonReport {
  std::string title, when, command;
  std::vector<std::string> notes;  ///< sentences: what "1*" is
  std::vector<Width> widths;
  std::vector<Fact> configuration;
  std::vector<Fact> machine;
};

std::string html(const ComparisonReport& report);

}  // namespace bie::report
