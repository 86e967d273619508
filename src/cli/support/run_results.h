// Results of a finished run.
#pragma once

#include <string>

#include "bie/data/dataset.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "report/run_report.h"

namespace bie::cli {

/// Which class was taken for which; no counts where the classes are too many for a table.
report::Confusion confusion_of(const at::Tensor& logits, const at::Tensor& labels, const models::ModelConfig& config);

/// results.json of a run's folder.
/// @param model_file  the packed model's
Json results_json(const Session& session, const data::Dataset& data, const std::string& model_file);

}  // namespace bie::cli
