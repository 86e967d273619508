// Finished runs side by side.
#pragma once

#include <string>
#include <vector>

#include "cli/support/result.h"
#include "report/runs_report.h"

namespace bie::cli {

/// Reads the folders' config.json, log.jsonl and results.json.
/// @throws c10::ValueError, one sentence, for a folder that holds no finished run, a file that is damaged, and runs
///         whose scores are of different kinds.
report::RunsReport compared(const std::vector<std::string>& folders);

/// The runs as lines on stdout.
void print_runs(const report::RunsReport& runs);

/// [{"run", "test_accuracy" or "test_r2", "low", "high", "test_loss", "model_bytes", "seconds", "epochs"}]
Json runs_json(const report::RunsReport& runs);

}  // namespace bie::cli
