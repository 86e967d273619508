// Results of weight-only products to memory.
#pragma once

#include "kernels/cuda/weight_opener.cuh"

namespace bie::kernels::cuda::weight_only {

__device__ inline void put(const Args& p, int row, int column, float value) {
  if (p.bias != nullptr) value += p.bias[column];
  char* const to = p.y + row * p.y_stride;
  if (p.y_dtype == Dtype::f32)
    reinterpret_cast<float*>(to)[column] = value;
  else if (p.y_dtype == Dtype::bf16)
    reinterpret_cast<__nv_bfloat16*>(to)[column] = __float2bfloat16_rn(value);
  else
    reinterpret_cast<__half*>(to)[column] = __float2half_rn(value);
}

/// Columns `column`, an even one, and the next, which may not be there.
__device__ inline void put_pair(const Args& p, int row, int column, float first, float second) {
  char* const to = p.y + row * p.y_stride;
  if (p.y_dtype == Dtype::f32 || column + 1 >= p.n || (reinterpret_cast<std::uintptr_t>(to) & 3) != 0) {
    put(p, row, column, first);
    if (column + 1 < p.n) put(p, row, column + 1, second);
    return;
  }
  if (p.bias != nullptr) first += p.bias[column], second += p.bias[column + 1];
  if (p.y_dtype == Dtype::bf16)
    reinterpret_cast<__nv_bfloat162*>(to)[column / 2] = __floats2bfloat162_rn(first, second);
  else
    reinterpret_cast<__half2*>(to)[column / 2] = __floats2half2_rn(first, second);
}

}  // namespace bie::kernels::cuda::weight_only
