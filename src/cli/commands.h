// The subcommands of `bie`. Each adds itself to the parser; its work runs when the parser has chosen it.
// Results go to stdout, logs and progress to stderr.
#pragma once

#include <CLI/App.hpp>

namespace bie::cli {

/// Exit codes of the command.
enum Exit { ok = 0, failed = 1, usage = 2, bad_data = 3 };

void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_demo(CLI::App& app);
void add_doctor(CLI::App& app);
void add_tune(CLI::App& app);

}  // namespace bie::cli
