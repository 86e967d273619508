// Totals of whole arrays, the same for the same array whatever runs beside: the blocks of a grid that depends on the
// count alone leave partial totals, and one block adds those in order.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/quantize.h"
#include "kernels/cuda/launch.cuh"

namespace bie::kernels::cuda {

constexpr int total_threads = 256;
constexpr int most_partials = 1024;
constexpr int result_bytes = 64;

/// Where a reduction may leave up to result_bytes for the pass behind it; partial totals end before.
template <class T>
T* result_in(void* workspace) {
  return reinterpret_cast<T*>(static_cast<char*>(workspace) + reduction_bytes - result_bytes);
}

/// The total of the block's threads, in all of them. A Total has none(), add() and no constructor.
template <class Total>
__device__ inline Total of_block(const Total& mine) {
  __shared__ Total part[total_threads];
  part[threadIdx.x] = mine;
  for (int half = total_threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x].add(part[threadIdx.x + half]);
  }
  __syncthreads();
  return part[0];
}

template <class Total, class Take>
__global__ void __launch_bounds__(total_threads) partial_totals(std::int64_t count, const Take take, Total* partials) {
  Total mine = Total::none();
  const std::int64_t stride = std::int64_t{total_threads} * gridDim.x;
  std::int64_t i = std::int64_t{blockIdx.x} * total_threads + threadIdx.x;
  for (; i < count; i += stride) take(i, mine);
  mine = of_block(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = mine;
}

template <class Total, class Finish>
__global__ void __launch_bounds__(total_threads) last_total(const Total* partials, int count, const Finish finish) {
  Total mine = Total::none();
  for (int i = threadIdx.x; i < count; i += total_threads) mine.add(partials[i]);
  mine = of_block(mine);
  if (threadIdx.x == 0) finish(mine);
}

/// Grid size of partial_totals for `count` elements.
inline int reduction_blocks(std::int64_t count) {
  return static_cast<int>(blocks_for(count, 8 * total_threads, most_partials));
}

/// take(i, total) adds element i to a total, finish(total) writes what is wanted of it, also where count is 0. Both are
/// structs with a __device__ operator().
template <class Total, class Take, class Finish>
Status reduce(std::int64_t count, const Take& take, const Finish& finish, void* workspace, const Queue& queue) {
  static_assert(most_partials * sizeof(Total) + result_bytes <= reduction_bytes);
  Total* partials = static_cast<Total*>(workspace);
  const int blocks = reduction_blocks(count);
  const Status status = launch(partial_totals<Total, Take>, blocks, total_threads, 0, queue, count, take, partials);
  if (status != Status::ok) return status;
  return launch(last_total<Total, Finish>, 1, total_threads, 0, queue, partials, blocks, finish);
}

}  // namespace bie::kernels::cuda
