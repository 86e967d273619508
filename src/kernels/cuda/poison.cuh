// What tells NaN or infinity of an image to results that other blocks have written.
#pragma once

#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

constexpr int poison_threads = 256;

/// Where a block met NaN or infinity, every result becomes NaN.
template <class T>
__global__ void __launch_bounds__(poison_threads) poison_kernel(T* y, std::int64_t count, Flags flags) {
  let_next_start();
  wait_for_previous_kernel();
  if (__syncthreads_or(own_flag(flags)) == 0) return;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x)
    y[i] = narrow<T>(__int_as_float(0x7fc00000));
}

/// Queues it behind the kernel that sets the flags. Results that are no floats stay as they are.
inline Status poison(const Results& y, std::int64_t count, const Flags& flags, const Gpu& gpu, const Queue& queue) {
  if (!is_float(y.dtype)) return Status::ok;
  return with_float(y.dtype, [&](auto type) {
    using T = decltype(type);
    T* const data = static_cast<T*>(y.data);
    const std::int64_t few = blocks_for(count, poison_threads, 64);
    return gpu.sm >= 90 ? launch_beside(poison_kernel<T>, few, poison_threads, 0, queue, data, count, flags)
                        : launch(poison_kernel<T>, few, poison_threads, 0, queue, data, count, flags);
  });
}

}  // namespace bie::kernels::cuda
