// Several runs side by side as one HTML page; see run_report.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/facts.h"
#include "report/run_report.h"

namespace bie::report {

/// A finished run.
struct Run {
  std::string name;
  double test_score = unknown, test_loss = unknown;
  std::int64_t test_samples = 0;
  std::uint64_t model_bytes = 0;  ///< 0: not known
  std::uint64_t weights = 0;
  double seconds = unknown;
  std::vector<Epoch> epochs;
  Confusion confusion;
};

/// An option that not all runs have alike.
struct Difference {
  std::string option;
  std::vector<std::string> values;  ///< one per run; empty where a run does not have it
};

struct RunsReport {
  std::string title, when, command;
  std::vector<std::string> notes;
  Metric metric;
  std::vector<Run> runs;
  std::vector<Difference> differences;
};

/// "98.33 % (97.1 to 99.0)": a test score and, of an accuracy, Wilson's interval of 95 %.
std::string score_with_interval(double score, std::int64_t samples, const Metric& metric);

std::string html(const RunsReport& report);

}  // namespace bie::report
