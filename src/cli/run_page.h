// A finished run as the page of a run folder.
#pragma once

#include <string>
#include <vector>

#include "bie/io/dataset.h"
#include "cli/result.h"
#include "cli/session.h"
#include "report/facts.h"

namespace bie::cli {

/// @param config  what went into config.json.
std::string run_page(const Session& session, const io::Dataset& data, const Json& config);

/// The program and the processor as lines of a report.
std::vector<report::Fact> machine_facts();

}  // namespace bie::cli
