// Build and machine of this program: for `bie --version`, `bie doctor` and config.json of a run.
#pragma once

#include <string>

#include "cli/support/result.h"

namespace bie::cli {

/// {"version", "torch", "compiler", "build", "cuda" (of the build, null without), "cpu", "isa", "isa_note"}.
Json build_info();

/// The lines of `bie --version`.
std::string version_text();

}  // namespace bie::cli
