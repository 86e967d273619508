// Log lines on stderr. Behind plain functions because torch's include folder carries a newer fmt than spdlog's.
#pragma once

#include <string>

namespace bie::cli::log {

void start(bool quiet);
void info(const std::string& sentence);
void warn(const std::string& sentence);
void error(const std::string& sentence);

}  // namespace bie::cli::log
