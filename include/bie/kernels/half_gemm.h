// Products of float activations with weights of 16-bit floats, which stay so in memory and are widened in registers:
// the sums of float_gemm.h over the same numbers, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/gemm.h"

namespace bie::kernels {

/// y[i, j] = (sum over k of x[i, k] * w[j, k]) + bias[j]: from 0 on, k ascending, one fused multiply-add per term.
struct HalfGemmKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const GemmShape&);
  std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k);
  /// w [n, k] of the table's dtype, row-major, aligned to nothing; `packed` is aligned to 64 bytes.
  void (*prepack)(const void* w, std::int64_t n, std::int64_t k, void* packed, const Parallel&);
  /// x [m, k] and y [m, n] float32, dense; bias [n] or null. bad_shape for a negative size,
  /// out_of_memory where a block of rows has no room.
  Status (*run)(const GemmShape&, const float* x, const void* packed, const float* bias, float* y, const Parallel&);
};

/// Weights of float16, and of bfloat16.
Table<HalfGemmKernel> f16_gemm_table();
Table<HalfGemmKernel> bf16_gemm_table();

}  // namespace bie::kernels
