// Importance of each column to a model of a table.
#pragma once

#include <vector>

#include "bie/data/dataset.h"
#include "cli/support/session.h"
#include "report/facts.h"

namespace bie::cli {

/// Permutation importance: by how much the test score falls when a column's values are shuffled among the test rows,
/// the mean of three shuffles, the largest first. It uses at most 2000 test rows and returns the first 20 columns of
/// that order; nothing for tables of more than 200 columns or without names, and for pictures.
std::vector<report::Fact> importance_of(const Session& session, const data::Dataset& data);

}  // namespace bie::cli
