// The numbers by which BITorch Engine's API names rows.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>

#include "bie/kernels/gemm.h"

namespace bie::ops {

/// Ids below this one leave the choice to the table; this one names its first kernel, the next the second.
inline constexpr std::int64_t first_kernel_id = 100;
/// Ids of the CUDA kernels. An id of the other kind of device is automatic, so that a layer can move.
inline constexpr std::int64_t first_cuda_kernel_id = 200, last_cuda_kernel_id = 299;

/// Warns once of an id that is of no kind of device.
inline void warn_of_id(const char* op, const kernels::GemmShape& shape, std::int64_t kernel_id) {
  if (kernel_id < 0 || kernel_id >= first_kernel_id) {
    TORCH_WARN_ONCE(op, ": kernel_id ", kernel_id, " names no kernel for [", shape.m, ", ", shape.n, ", ", shape.k,
                    "] on this machine, the choice is automatic");
  }
}

}  // namespace bie::ops
