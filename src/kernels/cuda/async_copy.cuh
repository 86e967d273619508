// Copies to shared memory that run beside other work (cp.async, sm_80 and later), in groups, and reads from there.
// Addresses are of the shared window, 32 bits.
#pragma once

namespace bie::kernels::cuda {

__device__ inline void copy_chunk(unsigned to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const int bytes = inside ? 16 : 0;  // the rest of the sixteen is filled with zeros
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
#endif
}

/// copy_chunk through the L1 cache.
__device__ inline void copy_chunk_by_l1(unsigned to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
#endif
}

/// Copies eight bytes.
__device__ inline void copy_half(unsigned to, const void* from, bool inside) {
#if __CUDA_ARCH__ >= 800
  const int bytes = inside ? 8 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes));
#endif
}

__device__ inline void commit_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}

__device__ inline uint4 load_chunk(unsigned from) {
  uint4 chunk;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
               : "r"(from));
  return chunk;
}

template <int pending>
__device__ void wait_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending));
#endif
}

}  // namespace bie::kernels::cuda
