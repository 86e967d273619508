// Tuned choices of the CPU tables.
#pragma once

#include "bie/kernels/gemm.h"

namespace bie::ops::cpu {

/// The kernel that was found fastest for weights [n, k] on this CPU with these instruction sets, or null.
const kernels::GemmKernel* tuned_kernel(const kernels::GemmTable& table, const kernels::GemmShape& shape,
                                        kernels::IsaSet isas);

}  // namespace bie::ops::cpu
