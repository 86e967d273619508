// The options that stand before or after any command.
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "cli/commands/commands.h"

namespace bie::cli {

void add_global_options(CLI::App& app, Global& global, const std::string& threads) {
  app.add_option("--threads", global.threads, "CPU threads (default: " + threads + ")")->check(CLI::Range(1, 1024));
  app.add_flag("-q,--quiet", global.quiet, "errors only, no other log lines");
  app.add_flag("--json", global.json, "one JSON object on stdout instead of text");
  app.fallthrough();
}

}  // namespace bie::cli
