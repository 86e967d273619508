// The section of a run's page about its layers.
#pragma once

#include <vector>

#include "report/markup.h"
#include "report/run_report.h"

namespace bie::report {

/// A section: a table of all layers, then the weights, step sizes and flips of each that has any. Nothing without
/// layers.
void draw(Markup& page, const std::vector<Layer>& layers, const std::vector<double>& epochs);

}  // namespace bie::report
