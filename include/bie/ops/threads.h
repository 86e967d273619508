// torch's threads, as kernels take them.
#pragma once

#include "bie/kernels/parallel.h"
#include "bie/ops.h"

namespace bie::ops {

/// at::parallel_for on torch's threads, as many as at::get_num_threads() says.
BIE_API kernels::Parallel torch_parallel();

}  // namespace bie::ops
