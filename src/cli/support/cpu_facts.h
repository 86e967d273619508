// CPU features and the kernels that run on this CPU, for bie doctor.
#pragma once

#include <string>
#include <vector>

#include "cli/support/result.h"

namespace bie::cli {

/// A kernel of a table, what it is compiled for, and why it runs here or does not.
struct Kernel {
  std::string name, isa, state;
};

/// The kernels of every table, best first.
std::vector<Kernel> cpu_kernels();
Json kernels_json(const std::vector<Kernel>& all);
void print_kernels(const std::vector<Kernel>& all);

/// The instruction sets of this architecture.
Json instruction_sets_json();
void print_instruction_sets();

}  // namespace bie::cli
