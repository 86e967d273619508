// Results of weight-only products to memory.
#pragma once

#include "kernels/cuda/floats.cuh"
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

/// Whether eight columns from a multiple of eight on begin at 16 bytes in every row.
__device__ inline bool puts_eights(const Args& p) {
  return ((reinterpret_cast<std::uintptr_t>(p.y) | static_cast<std::uintptr_t>(p.y_stride)) & 15) == 0;
}
/// Columns from `column` on, a multiple of eight, those that are there. `eights`: puts_eights, and all are.
__device__ inline void put_eight(const Args& p, int row, int column, bool eights, const float (&values)[8]) {
  if (!eights || p.y_dtype == Dtype::f32) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      if (column + j < p.n) put_pair(p, row, column + j, values[j], values[j + 1]);
    return;
  }
  unsigned pairs[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    Two<float> two{values[2 * j], values[2 * j + 1]};
    if (p.bias != nullptr) two.at[0] += p.bias[column + 2 * j], two.at[1] += p.bias[column + 2 * j + 1];
    const auto bits_of = [](auto narrowed) { return reinterpret_cast<const unsigned&>(narrowed); };
    pairs[j] = p.y_dtype == Dtype::bf16 ? bits_of(narrow_two<__nv_bfloat16>(two)) : bits_of(narrow_two<__half>(two));
  }
  *reinterpret_cast<uint4*>(p.y + row * p.y_stride + 2 * column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

}  // namespace bie::kernels::cuda::weight_only
