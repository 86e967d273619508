// Suggests commands and options for a mistyped command line.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace bie::cli {

/// "did you mean train?", "did you mean --epochs?"; empty where nothing known is near, or every word is known.
std::string suggestion(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace bie::cli
