// The command's own description of itself: completion for shells, the man page.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace bie::cli {

/// A script for "bash", "zsh" or "fish", written from the parser; throws a ValueError for any other shell.
std::string completion_script(const CLI::App& app, const std::string& shell);

/// bie.1 in the man macros.
std::string man_page(const CLI::App& app);

}  // namespace bie::cli
