// The arithmetic of one element stands in this folder, once for CPU and CUDA.
#pragma once

/// Goes before a function of one element and gives it internal linkage: a copy that was compiled with AVX flags must
/// not be the one that the linker keeps for plain code.
#if defined(__CUDACC__)
#define BIE_HOST_DEVICE __host__ __device__ static inline
#else
#define BIE_HOST_DEVICE static inline
#endif
