// Chart of a regression's predictions against the true values.
#pragma once

#include <string>
#include <vector>

#include "report/markup.h"

namespace bie::report {

/// A regression's test rows, in the unit of the data.
struct Answers {
  std::vector<double> truth, predicted;
  std::string what;  ///< "price"
};

/// A section with a dot a row and the line where both are equal; nothing where no row has both numbers.
void draw(Markup& page, const Answers& answers);

}  // namespace bie::report
