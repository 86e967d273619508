// How often which weight occurs.
#pragma once

#include <string>

#include "report/facts.h"
#include "report/markup.h"

namespace bie::report {

/// A small figure; nothing for a histogram without counts or without a range.
void draw(Markup& page, const std::string& title, const Histogram& histogram);

}  // namespace bie::report
