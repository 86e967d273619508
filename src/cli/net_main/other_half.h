// The half of the command that has torch, a program of its own: bie-torch, beside this one or in ../libexec/bie.
#pragma once

#include <string>
#include <vector>

namespace bie::cli {

/// Whether this half, which starts in a few milliseconds, does what the command line asks for: `run`, `import`, and
/// `predict`, `inspect` and `bench` of exported nets.
bool is_for_nets(const std::vector<std::string>& words);

/// Becomes the other half. Returns where there is none. @throws std::runtime_error where it cannot be started.
void become_other_half(char** argv);

}  // namespace bie::cli
