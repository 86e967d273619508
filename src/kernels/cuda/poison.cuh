// NaN results behind a launch whose blocks could not know of each other's NaN. A block that encodes NaN or infinity
// sets its flag (codes.cuh); a product that runs afterwards reads the flags and writes NaN by itself.
#pragma once

#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

constexpr int poison_threads = 256;

/// If a block met NaN or infinity, every result becomes NaN.
template <class T>
__global__ void __launch_bounds__(poison_threads) poison_kernel(T* y, std::int64_t count, Flags flags) {
  let_next_start();
  wait_for_previous_kernel();
  if (__syncthreads_or(own_flag(flags)) == 0) return;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * blockDim.x)
    y[i] = narrow<T>(__int_as_float(0x7fc00000));
}

/// Queues it for `count` results behind the launch that sets the flags. Integers stay as they are.
inline Status poison(void* y, Dtype dtype, std::int64_t count, const Flags& flags, const Queue& queue) {
  if (!is_float(dtype)) return Status::ok;
  return with_float(dtype, [&](auto type) {
    using T = decltype(type);
    return launch_early(poison_kernel<T>, blocks_for(count, poison_threads, 64), poison_threads, 0, queue,
                        static_cast<T*>(y), count, flags);
  });
}

}  // namespace bie::kernels::cuda
