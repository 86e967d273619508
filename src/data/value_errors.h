// Errors of files as torch's rooms throw them.
#pragma once

#include <c10/util/Exception.h>

#include "bie/formats/error.h"

namespace bie::data {

/// Returns action(), with formats::Error rethrown as a c10::ValueError of the same sentence.
template <class Action>
auto with_value_errors(const Action& action) {
  try {
    return action();
  } catch (const formats::Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

}  // namespace bie::data
