// Barriers of some warps of a block, by number: from 1 to 15, 0 is __syncthreads'.
#pragma once

namespace bie::kernels::cuda {

/// Waits until `threads` threads have arrived, waiting or not.
template <int threads>
__device__ void wait_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}
/// Arrives without waiting.
template <int threads>
__device__ void arrive_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

}  // namespace bie::kernels::cuda
