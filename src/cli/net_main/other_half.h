// The half of the command that has torch, a program of its own, bie-torch: beside this one, in ../libexec/bie, or where
// the environment variable BIE_TORCH_PROGRAM says, as the console script of the wheel does.
#pragma once

#include <string>
#include <vector>

namespace bie::cli {

/// Whether this half, which starts in a few milliseconds, does what the command line asks for: language models, `run`
/// and `import`, and `predict`, `inspect` and `bench` of exported nets.
bool is_for_nets(const std::vector<std::string>& words);

/// Becomes the other half. Returns where there is none. @throws std::runtime_error where it cannot be started.
void become_other_half(char** argv);

/// Returns what is missing where there is no other half; the console script says it in BIE_TORCH_MISSING.
std::string without_other_half();

}  // namespace bie::cli
