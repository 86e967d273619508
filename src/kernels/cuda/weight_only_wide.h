// Arguments that the host passes to the kernels of many-row weight-only products (weight_only_wide.cuh).
#pragma once

#include <cuda.h>

#include "kernels/cuda/weight_opener.cuh"

namespace bie::kernels::cuda::weight_only {

/// Rows of a block's tile; those of 64 and 128 are of 64 outputs, those of 256 of 128.
enum class WideTile : char { rows64, rows128, rows256 };

struct WideArgs {
  CUtensorMap x;
  Args p;
  int row_tiles;
  WideTile tile;
};

/// One instance per file: instances/weight_only_gemm_wgmma_w*.cu.
template <int width>
Status run_wide(WideArgs& args, bool bf16, const Queue& queue);

}  // namespace bie::kernels::cuda::weight_only
