// The text of --help: two columns, no line wider than a terminal of 80 columns.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace bie::cli {

/// Names the words that an option takes, for help and completion: "mlp|lenet". The command refuses other words.
CLI::Option* takes_one_of(CLI::Option* option, const std::vector<std::string>& choices);
/// The words of such an option; none of another one.
std::vector<std::string> choices_of(const CLI::Option& option);

/// Value name of an option: "INT", "FILE", "TEXT ..." if there may be several; empty for a flag.
std::string value_name(const CLI::Option& option);

/// Adds the command that prints the help of another one.
void add_help(CLI::App& app);

/// Shapes the help of a command and, as subcommands inherit it, of all commands below.
void use_help_text(CLI::App& app);

}  // namespace bie::cli
