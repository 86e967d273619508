#include "cli/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace bie::cli {

ProgressBar::ProgressBar(std::string label) : label_(std::move(label)), terminal_(isatty(STDERR_FILENO) != 0) {}

ProgressBar::~ProgressBar() {
  if (!drawn_.empty()) std::fprintf(stderr, "\r%*s\r", static_cast<int>(drawn_.size()), "");
}

void ProgressBar::show(double share, const std::string& note) {
  if (!terminal_) return;
  constexpr int width = 30;
  const int full = std::clamp(static_cast<int>(share * width), 0, width);
  std::string line = label_ + " [" + std::string(static_cast<std::size_t>(full), '#') +
                     std::string(static_cast<std::size_t>(width - full), '.') + "] " + note;
  if (line == drawn_) return;
  line.resize(std::max(line.size(), drawn_.size()), ' ');
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
  drawn_ = std::move(line);
}

}  // namespace bie::cli
