// Operand types of a product: Quantiser, Weight, Factor and the like.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/kernels/dtype.h"
#include "ops/backend/scales.h"

namespace bie::ops {

/// Quantiser of a product's activation, step = max(scale, floor), with the scale of its result.
struct Quantiser {
  at::Tensor bias;  ///< float32 or undefined
  Scale scale_a, scale_w;
  float floor = 1;

  float step() const { return scale_a.value > floor ? scale_a.value : floor; }  ///< on the CPU
  float result_scale() const { return scale_a.value * scale_w.value; }          ///< on the CPU
  const float* bias_data() const { return bias.defined() ? bias.const_data_ptr<float>() : nullptr; }
};

/// The weight of a GEMM or convolution, and perhaps already arranged.
struct Weight {
  at::Tensor values;  ///< on the CPU in the checkpoint layout; on CUDA that, int8 codes of one byte, or floats
  kernels::Dtype dtype = kernels::Dtype::f32;  ///< of `values`
  Scale scale;                                 ///< floats become codes with max(scale, floor)
  float floor = 1;
  at::Tensor panels;  ///< undefined, or from prepack (see panels_of): `values` is not read then
};

}  // namespace bie::ops
