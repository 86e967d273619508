// Steps of codes whose place is kept, on CUDA: the CPU's bits (bie/kernels/code_step.h).
#pragma once

#include "bie/kernels/code_step.h"
#include "bie/kernels/cuda/device.h"

namespace bie::kernels::cuda {

/// All pointers are the device's. Weights of one form have their steps in few launches.
Status code_steps(const CodeStep* steps, int count, const Queue&);

}  // namespace bie::kernels::cuda
