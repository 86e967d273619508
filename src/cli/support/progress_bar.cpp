#include "cli/support/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace bie::cli {
namespace {

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::clear() {
  if (!drawn_.empty()) std::fprintf(stderr, "\r%*s\r", static_cast<int>(drawn_.size()), "");
  drawn_.clear();
}

void ProgressBar::show(double share, const std::string& note) {
  if (!terminal_) return;
  constexpr std::size_t widest = 24, least = 5;
  const std::size_t columns = terminal_columns() - 1;  // the last column makes some terminals wrap
  const std::size_t rest = label_.size() + 4 + note.size();
  const std::size_t width = std::clamp(columns > rest ? columns - rest : 0, least, widest);
  const std::size_t full = std::min(static_cast<std::size_t>(std::max(share, 0.0) * static_cast<double>(width)), width);
  std::string line = label_ + " [" + std::string(full, '#') + std::string(width - full, '.') + "] " + note;
  if (line.size() > columns) line.resize(columns);
  if (line == drawn_) return;
  line.resize(std::max(line.size(), std::min(drawn_.size(), columns)), ' ');
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
  drawn_ = std::move(line);
}

}  // namespace bie::cli
