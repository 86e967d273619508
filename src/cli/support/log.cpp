#include "cli/support/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "cli/support/text.h"

namespace bie::cli::log {

void start(bool quiet) {
  if (!spdlog::get("bie")) spdlog::set_default_logger(spdlog::stderr_color_st("bie"));
  spdlog::set_pattern("%^%l%$: %v");
  spdlog::set_level(quiet ? spdlog::level::err : spdlog::level::info);
}

// Sentences name files, and quote what is in them.
void info(const std::string& sentence) { spdlog::info("{}", printable(sentence)); }
void warn(const std::string& sentence) { spdlog::warn("{}", printable(sentence)); }
void error(const std::string& sentence) { spdlog::error("{}", printable(sentence)); }

}  // namespace bie::cli::log
