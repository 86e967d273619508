// A run, finished or interrupted, as the page of a run folder.
#pragma once

#include <string>
#include <vector>

#include "bie/data/dataset.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "report/run_report.h"

namespace bie::cli {

/// The program and the processor as lines of a report.
std::vector<report::Fact> machine_facts();

/// The note on a run that ended by its patience.
inline constexpr const char* stopped_early =
    "Stopped early: the test score got no better. The test samples chose the moment, so the score flatters.";

inline constexpr const char* stopped_by_validation =
    "Stopped early: the score of the validation samples got no better.";

/// Parts of a page beside the run.
struct PageParts {
  std::vector<std::string> notes = {};  ///< sentences that stand at the top
  std::vector<report::Rank> ranks = {};
  std::vector<report::Fact> machine = machine_facts();
};

/// An interrupted run has no confusion table and no mistakes: there are no outputs of its test samples.
/// @param config  what went into config.json.
std::string run_page(const Session& session, const data::Dataset& data, const Json& config, const PageParts& parts);

/// Share of all binary weights whose sign is not the start's after an epoch; NaN where there are none.
double flipped_of(const train::Epoch& epoch, const std::vector<models::ProductLayer>& products);

/// The fields of an object that are no lists and no objects, as lines of a report.
std::vector<report::Fact> facts_of(const Json& object);

}  // namespace bie::cli
