// A run, finished or interrupted, as the page of a run folder.
#pragma once

#include <string>
#include <vector>

#include "bie/data/dataset.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "report/facts.h"

namespace bie::cli {

/// An interrupted run has no confusion table and no mistakes: they would take another pass over the test images.
/// @param config  what went into config.json.
/// @param notes   sentences that stand at the top.
std::string run_page(const Session& session, const data::Dataset& data, const Json& config,
                     const std::vector<std::string>& notes);

/// The program and the processor as lines of a report.
std::vector<report::Fact> machine_facts();

}  // namespace bie::cli
