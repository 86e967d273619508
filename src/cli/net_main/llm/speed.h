// The work of bie evaluate --speed.
#pragma once

#include "cli/llm/language.h"

namespace bie::cli {

void tell_speed(const EvaluateArguments& arguments, const Global& global);

}  // namespace bie::cli
