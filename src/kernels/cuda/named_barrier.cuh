// Barriers of some warps of a block, by number: from 1 to 15, 0 is __syncthreads'.
#pragma once

namespace bie::kernels::cuda {

/// Waits until `threads` threads have come, whether they wait or only arrive.
template <int threads>
__device__ void wait_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}
/// Comes and goes on.
template <int threads>
__device__ void arrive_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

}  // namespace bie::kernels::cuda
