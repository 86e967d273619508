// Products of floats, for the layers of a net that stay float, with a written order of the sum: every kernel of the
// table and every number of rows and threads gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bie/kernels/conv2d.h"

namespace bie::kernels {

/// y[i, j] = (sum over k of x[i, k] * w[j, k]) + bias[j]: from 0 on, k ascending, one fused multiply-add per term.
struct FloatGemmKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const GemmShape&);
  std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k);
  /// w [n, k] float32 row-major; `packed` is aligned to 64 bytes and is this kernel's.
  void (*prepack)(const float* w, std::int64_t n, std::int64_t k, float* packed);
  /// x [m, k] and y [m, n] float32, dense; bias [n] or null. bad_shape for a negative size, out_of_memory where a block
  /// of rows has no room.
  Status (*run)(const GemmShape&, const float* x, const float* packed, const float* bias, float* y, const Parallel&);
};
Table<FloatGemmKernel> float_gemm_table();

/// Float convolution: y = (sum over c, i, j of w[o, c, i, j] * x[...]) + bias[o], added in that order. Padding is 0 and
/// its products are added like any others.
struct FloatConv2dKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const Conv2dShape&);
  /// x and y NCHW; w [out_c, in_c / groups, kernel_h, kernel_w] as it is; pad_code is not read.
  Status (*run)(const Conv2dShape&, const float* x, const float* w, const float* bias, float* y, const Parallel&);
  // The same convolution with a tail: x is NCHW; the tensors that the tail reads and writes are NHWC. w is arranged
  // once; `packed` is aligned to 64 bytes. bad_scale for codes of a step that is no positive number, not_finite where v
  // + bias of a code is not.
  std::size_t (*packed_bytes)(const Conv2dShape&);
  void (*prepack)(const float* w, const Conv2dShape&, float* packed);
  Status (*run_tailed)(const Conv2dShape&, const float* x, const float* packed, const float* bias, const Conv2dTail&,
                       const Parallel&);
};
Table<FloatConv2dKernel> float_conv2d_table();

}  // namespace bie::kernels
