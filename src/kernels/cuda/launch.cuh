// Launch helpers: selecting the device, checking the grid, mapping CUDA errors to Status.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bie/kernels/cuda/device.h"

namespace bie::kernels::cuda {

/// Makes the queue's device the current one of this thread.
inline bool enter(const Queue& queue) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && (current == queue.device || cudaSetDevice(queue.device) == cudaSuccess))
    return true;
  cudaGetLastError();
  return false;
}

cudaError_t& last_error_code();

/// Maps a launch error to a Status. A fault of this launch (another kernel may still work) is told apart from one of
/// earlier asynchronous work.
inline Status status_of(cudaError_t error) {
  if (error == cudaSuccess) return Status::ok;
  last_error_code() = error;
  switch (error) {
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidPtx:
    case cudaErrorInvalidValue:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return Status::launch_failed;
    default: return Status::device_error;
  }
}

/// Prepares a launch: checks the grid size, selects the device and raises the limit of dynamic shared memory.
template <class... P>
Status prepare(void (*kernel)(P...), std::int64_t blocks, std::size_t shared, const Queue& queue) {
  if (blocks > INT32_MAX) return Status::bad_shape;
  if (!enter(queue)) return Status::no_device;
  constexpr std::size_t always_allowed = 48 * 1024;
  if (shared > always_allowed) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
    if (error != cudaSuccess) {
      cudaGetLastError();
      return status_of(error);
    }
  }
  return Status::ok;
}

/// Starts a kernel on the queue. A launch that the runtime refuses is answered and forgotten, so that another kernel
/// can take its place.
template <class... P, class... A>
Status launch(void (*kernel)(P...), std::int64_t blocks, int threads, std::size_t shared, const Queue& queue,
              const A&... arguments) {
  if (blocks <= 0) return Status::ok;
  const Status ready = prepare(kernel, blocks, shared, queue);
  if (ready != Status::ok) return ready;
  kernel<<<static_cast<unsigned>(blocks), threads, shared, static_cast<cudaStream_t>(queue.stream)>>>(arguments...);
  return status_of(cudaGetLastError());
}

/// Whether kernels run as machine code of sm_90a. It alone waits for the kernel before and knows clusters: later GPUs
/// run the PTX of earlier ones.
inline bool runs_hopper_code(const Gpu& gpu) { return gpu.sm == 90; }

/// Launches a kernel that may start when the previous one calls let_next_start() and that waits for its end by itself
/// (programmatic dependent launch), in clusters of so many blocks. Needs runs_hopper_code().
template <class... P, class... A>
Status launch_clusters(void (*kernel)(P...), std::int64_t blocks, int cluster, int threads, std::size_t shared,
                       const Queue& queue, const A&... arguments) {
  if (blocks <= 0) return Status::ok;
  const Status ready = prepare(kernel, blocks, shared, queue);
  if (ready != Status::ok) return ready;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = static_cast<unsigned>(cluster);
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared;
  config.stream = static_cast<cudaStream_t>(queue.stream);
  config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (error != cudaSuccess) cudaGetLastError();
  return status_of(error);
}
template <class... P, class... A>
Status launch_beside(void (*kernel)(P...), std::int64_t blocks, int threads, std::size_t shared, const Queue& queue,
                     const A&... arguments) {
  return launch_clusters(kernel, blocks, 1, threads, shared, queue, arguments...);
}

/// launch_beside if the GPU supports it, else launch.
template <class... P, class... A>
Status launch_early(void (*kernel)(P...), std::int64_t blocks, int threads, std::size_t shared, const Queue& queue,
                    const A&... arguments) {
  const Gpu* facts = nullptr;
  const Status known = gpu(queue.device, &facts);
  if (known != Status::ok) return known;
  return runs_hopper_code(*facts) ? launch_beside(kernel, blocks, threads, shared, queue, arguments...)
                                  : launch(kernel, blocks, threads, shared, queue, arguments...);
}

/// Lets the next kernel start where launch_beside started it. Kernels may read weights before they wait for this one,
/// so what writes weights never says it and ends with publish_weights().
__device__ inline void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Makes what this thread wrote seen by the next kernel, which may start when the last block ends and read it before it
/// waits.
__device__ inline void publish_weights() { __threadfence(); }

/// If launch_beside started this kernel, waits until the previous one has ended and its writes are visible.
__device__ inline void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// threadIdx.x, read anew: what follows from it is not kept in registers from one tile to the next.
__device__ inline int thread_anew() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// Prefetches the cache line at the address.
__device__ inline void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/// Blocks that give every one of `count` items a thread, at most `most`: kernels go on in strides.
inline std::int64_t blocks_for(std::int64_t count, int threads, std::int64_t most = 4096) {
  const std::int64_t blocks = (count + threads - 1) / threads;
  return blocks < most ? blocks : most;
}

/// The scalar's value, on the device.
__device__ inline float value_of(const Scalar& scalar) {
  return scalar.device != nullptr ? *scalar.device : scalar.value;
}

}  // namespace bie::kernels::cuda
