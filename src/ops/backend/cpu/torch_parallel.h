// torch's threads as a kernel asks for them.
#pragma once

#include "bie/kernels/parallel.h"
#include "bie/ops.h"

namespace bie::ops {

/// at::parallel_for, with the number of threads torch has now.
BIE_API kernels::Parallel torch_parallel();

}  // namespace bie::ops
