// Ctrl-C as a question that a running command asks, so that it can save what it has.
#pragma once

#include <stdexcept>
#include <string>

namespace bie::cli {

/// Ends a command that has saved what it could; the sentence says how to go on.
class Interrupted : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// While it lives the first Ctrl-C (SIGINT) or SIGTERM is remembered; the second, and any one later, ends the process
/// as if nobody watched.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;
};

/// Whether one has come since the last watch began.
bool was_interrupted();

/// Whether that was SIGTERM, which no user types.
bool was_terminated();

}  // namespace bie::cli
