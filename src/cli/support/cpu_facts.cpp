#include "cli/support/cpu_facts.h"

#include <algorithm>
#include <cstdio>

#include "bie/kernels/isa.h"
#include "bie/kernels/registry.h"

namespace bie::cli {
namespace {

/// An instruction set of this architecture.
struct InstructionSet {
  std::string name, needs, state;
};

std::vector<InstructionSet> instruction_sets() {
  std::vector<InstructionSet> sets;
  for (const kernels::IsaFacts& f : kernels::isa_facts) {
    if (!kernels::belongs_to(f.isa, kernels::this_architecture)) continue;
    const char* reason = kernels::why_not(f.isa);
    sets.push_back({f.name, f.needs, reason == nullptr ? "available" : reason});
  }
  return sets;
}

}  // namespace

std::vector<Kernel> cpu_kernels() {
  std::vector<Kernel> found;
  kernels::for_each_table([&](const std::string&, const auto& table) {
    for (const auto& kernel : table) {
      const char* reason = kernels::why_not(kernel.isa);
      found.push_back({kernel.name, kernels::name(kernel.isa), reason == nullptr ? "available" : reason});
    }
  });
  return found;
}

Json kernels_json(const std::vector<Kernel>& all) {
  Json json = Json::array();
  for (const Kernel& kernel : all)
    json.push_back({{"name", kernel.name}, {"isa", kernel.isa}, {"state", kernel.state}});
  return json;
}

void print_kernels(const std::vector<Kernel>& all) {
  std::size_t width = 0;
  for (const Kernel& kernel : all) width = std::max(width, kernel.name.size());
  for (const Kernel& kernel : all)
    std::printf("  %-*s  %s\n", static_cast<int>(width), kernel.name.c_str(), kernel.state.c_str());
}

Json instruction_sets_json() {
  Json sets = Json::array();
  for (const InstructionSet& set : instruction_sets())
    sets.push_back({{"name", set.name}, {"needs", set.needs}, {"state", set.state}});
  return sets;
}

void print_instruction_sets() {
  std::printf("instruction sets (BIE_MAX_ISA=NAME leaves out those below NAME):\n");
  for (const InstructionSet& set : instruction_sets())
    std::printf("  %-10s %-50s %s\n", set.name.c_str(), set.needs.c_str(), set.state.c_str());
}

}  // namespace bie::cli
