// The text of --help: two columns, no line wider than a terminal of 80 columns.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace bie::cli {

/// What an option takes: "INT", "FILE", "TEXT ..." where there may be several; empty for a flag.
std::string value_name(const CLI::Option& option);

/// Shapes the help of a command and, as subcommands inherit it, of all commands below.
void use_help_text(CLI::App& app);

}  // namespace bie::cli
