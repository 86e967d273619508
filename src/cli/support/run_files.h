// The files of a run's folder, as the commands read them.
#pragma once

#include <string>
#include <vector>

#include "bie/train/history.h"
#include "cli/support/result.h"
#include "report/run_report.h"

namespace bie::cli {

// Each refuses with a c10::ValueError, one sentence that names the file.

/// The file of a model: the one that a run's folder holds, or the path itself.
std::string model_file(const std::string& path);

/// config.json with what a page asks of it.
Json config_of(const std::string& path);

/// The data set that the run was trained on, as --data takes it.
std::string spec_of(const Json& config, const std::string& path);

/// log.jsonl, a line an epoch.
std::vector<train::Epoch> history_of(const std::string& path);

/// ranks.json of a run of several processes; nothing where there is none.
std::vector<report::Rank> ranks_of(const std::string& path);

/// Results of a finished run: results.json. Unknown numbers are NaN.
struct RunResults {
  std::string metric;  ///< "accuracy" or "R2"
  double test_score, test_loss;
  std::int64_t test_samples;
  double seconds;
  std::int64_t epochs, weights;
  std::int64_t model_bytes;  ///< of the packed model
  report::Confusion confusion;
};
RunResults results_of(const std::string& path);

}  // namespace bie::cli
