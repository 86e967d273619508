#include "cli/support/failed_reads.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "cli/commands/commands.h"

namespace bie::cli {
namespace {

/// Calls nothing but what a handler may.
extern "C" void explain(int /*signal*/) {
  constexpr std::string_view sentence =
      "error: a file could not be read to its end: its disk failed, or another process has cut it short\n";
  static_cast<void>(::write(STDERR_FILENO, sentence.data(), sentence.size()) + 1);
  ::_exit(bad_data);
}

}  // namespace

void explain_failed_reads() {
  struct sigaction action {};
  action.sa_handler = explain;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace bie::cli
