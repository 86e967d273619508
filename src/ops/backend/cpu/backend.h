// The choice of a kernel, which all implementations for the CPU share.
#pragma once

#include "bie/kernels/isa.h"
#include "bie/kernels/table.h"
#include "ops/backend/backend.h"

namespace bie::ops::cpu {

/// The instruction sets in use; throws when BIE_MAX_ISA is not understood.
kernels::IsaSet host_isas(const char* op);
/// The kernel that this CPU runs.
template <class Kernel, class Shape>
const Kernel& chosen(const char* op, const kernels::Table<Kernel>& table, const Shape& shape) {
  return kernels::choose(table, shape, host_isas(op));
}

}  // namespace bie::ops::cpu
