// Where everything between the nodes lies: planned once, from when each value is written and last read.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/plan.h"

namespace bie::runtime {

struct MemoryPlan {
  std::vector<std::int64_t> offsets;  ///< per value, at multiples of 64; -1 for inputs and outputs of the net
  std::int64_t bytes = 0;
};

/// Plans the memory of passes over `batch` samples. Values that are live at the same time do not overlap. @throws
/// formats::Error where no machine has so much.
MemoryPlan plan_memory(const Plan& plan, const std::vector<std::uint32_t>& outputs, std::int64_t batch);

}  // namespace bie::runtime
