// Which class was taken for which.
#pragma once

#include "report/markup.h"
#include "report/run_report.h"

namespace bie::report {

/// A section: a heat map with counts, or for many classes the pairs that were confused most. Nothing for counts that
/// are not classes x classes, or all zero.
void draw(Markup& page, const Confusion& confusion);

}  // namespace bie::report
