// A one-line progress bar on stderr; silent where stderr is no terminal.
#pragma once

#include <string>

namespace bie::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws when the picture changes; `note` follows the bar. Never wider than the terminal.
  void show(double share, const std::string& note);
  /// Wipes the bar away, so that a line can be written in its place.
  void clear();

 private:
  std::string label_, drawn_;
  bool terminal_;
};

}  // namespace bie::cli
