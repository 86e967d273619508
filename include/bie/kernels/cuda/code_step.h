// A step of codes whose place is kept, on CUDA: the CPU's bits (bie/kernels/code_step.h).
#pragma once

#include "bie/kernels/code_step.h"
#include "bie/kernels/cuda/device.h"

namespace bie::kernels::cuda {

/// All pointers are the device's.
Status code_step(const CodeStep&, const Queue&);

}  // namespace bie::kernels::cuda
