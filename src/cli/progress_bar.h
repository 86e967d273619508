// A one-line progress bar on stderr; silent where stderr is no terminal.
#pragma once

#include <string>

namespace bie::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Redraws when the picture changes; `note` follows the bar.
  void show(double share, const std::string& note);

 private:
  std::string label_, drawn_;
  bool terminal_;
};

}  // namespace bie::cli
