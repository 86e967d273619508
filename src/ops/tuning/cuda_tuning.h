// Which row of a CUDA table is fastest for a shape: measured, and remembered in the tuning file.
#pragma once

#include "bie/kernels/cuda/gemm.h"

namespace bie::ops {

/// The row that was found fastest for such a shape on such a GPU, or null.
const kernels::cuda::GemmKernel* tuned_row(const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                                           const kernels::cuda::Gpu& gpu);

/// Times every row that fits, about 0.1 s at most, remembers the fastest and returns its index.
int tune(const char* op, const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape, int device);

}  // namespace bie::ops
