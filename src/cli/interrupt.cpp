#include "cli/interrupt.h"

#include <csignal>

namespace bie::cli {
namespace {

volatile std::sig_atomic_t seen = 0;

extern "C" void remember(int /*signal*/) { seen = 1; }

}  // namespace

void watch_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

bool was_interrupted() { return seen != 0; }

}  // namespace bie::cli
