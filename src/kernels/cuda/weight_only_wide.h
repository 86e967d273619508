// What the host and the kernels of weight-only products of many rows (weight_only_wide.cuh) share.
#pragma once

#include <cuda.h>

#include "kernels/cuda/weight_opener.cuh"

namespace bie::kernels::cuda::weight_only {

struct WideArgs {
  CUtensorMap x;  ///< rows of slots in the order of the tensor cores
  Args p;
  int row_tiles;
};

/// One instance a file: instances/weight_only_gemm_wgmma_w*.cu.
template <int width>
Status run_wide(WideArgs& args, const void* x, bool bf16, const Queue& queue);

}  // namespace bie::kernels::cuda::weight_only
