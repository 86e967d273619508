// Arguments that the host passes to the kernels of products of 8-bit activations with panels.
#pragma once

#include <cuda.h>

#include "kernels/cuda/weight_only_rows.cuh"

namespace bie::kernels::cuda::weight_only {

struct Int8Args : Args {       ///< x: codes, [m][32 * chunks]
  const RowScale* row_scales;  ///< [runs][scale_rows], at a multiple of 16 bytes
  int scale_rows, first_row;
};

struct Int8WideArgs {
  CUtensorMap x;
  Int8Args p;
  int row_tiles;
};

/// weight_only_workspace and weight_only_gemm of a plan for activations of 8 bits.
std::int64_t int8_workspace(const WeightOnlyPlan& plan, std::int64_t m);
Status int8_gemm(const WeightOnlyPlan& plan, std::int64_t m, const FloatRows& x, const void* panels,
                 const FloatResults& y, void* workspace, const Gpu& gpu, const Queue& queue);

/// One instance per file: instances/weight_only_int8_mma_w*.cu and instances/weight_only_int8_wgmma_w*.cu.
template <int width>
Status run_int8_tile(const Int8Args& p, const Gpu& gpu, const Queue& queue);
template <int width>
Status run_int8_wide(Int8WideArgs& args, const Gpu& gpu, const Queue& queue);

}  // namespace bie::kernels::cuda::weight_only
