// Ctrl-C as a question that a running command asks, so that it can save what it has.
#pragma once

#include <stdexcept>
#include <string>

namespace bie::cli {

/// Ends a command that has saved what it could; the sentence says how to go on.
class Interrupted : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// From here on the first Ctrl-C (SIGINT) or SIGTERM is remembered; the second ends the process as if nobody watched.
void watch_for_interrupts();

/// Whether one has come.
bool was_interrupted();

}  // namespace bie::cli
