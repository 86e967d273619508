#include "cli/support/interrupt.h"

#include <csignal>

namespace bie::cli {
namespace {

volatile std::sig_atomic_t seen = 0;

extern "C" void remember(int signal) { seen = signal; }

}  // namespace

InterruptWatch::InterruptWatch() {
  seen = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

InterruptWatch::~InterruptWatch() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
}

bool was_interrupted() { return seen != 0; }

bool was_terminated() { return seen == SIGTERM; }

}  // namespace bie::cli
