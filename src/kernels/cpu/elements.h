// Helpers shared by the drivers of elementwise loops.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"

namespace bie::kernels::cpu {

/// Elements that one task of a loop over them has at least.
constexpr std::int64_t element_grain = 1 << 14;

/// body(begin, end) on disjoint ranges that cover [0, count).
template <class Body>
Status for_elements(std::int64_t count, const Parallel& parallel, const Body& body) {
  if (count < 0) return Status::bad_shape;
  parallel_for(parallel, count, element_grain, body);
  return Status::ok;
}

}  // namespace bie::kernels::cpu
