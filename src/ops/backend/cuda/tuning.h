// Tuned choices of the CUDA tables.
#pragma once

#include "bie/kernels/cuda/gemm.h"

namespace bie::ops::cuda {

/// The kernel that was found fastest for such a shape on such a GPU, or null.
const kernels::cuda::GemmKernel* tuned_kernel(const kernels::cuda::GemmTable& table, const kernels::GemmShape& shape,
                                              const kernels::cuda::Gpu& gpu);

}  // namespace bie::ops::cuda
