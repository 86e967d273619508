// Scales: numbers on the CPU, left where they are on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/kernels/cuda/device.h"

namespace bie::ops {

/// The only element of a scale, widened to float32; throws unless it is one finite floating-point number.
float scale_value(const char* op, const char* name, const at::Tensor& scale);

/// A scale as the kernels of its device take it: a number on the CPU, left where it is on CUDA, because reading it
/// would wait for the device.
struct Scale {
  float value = 0;    ///< where `device` is undefined
  at::Tensor device;  ///< one float32 on CUDA, or undefined

  kernels::cuda::Scalar scalar() const { return {device.defined() ? device.const_data_ptr<float>() : nullptr, value}; }
};

inline const Scale unit_scale{1, {}};

/// values * scale, not multiplied yet: the pass that reads them does it.
struct Scaled {
  at::Tensor values;
  Scale scale = unit_scale;
  at::Tensor totals{};  ///< undefined, or on CUDA an int8_grad's workspace
  int total_count = 0;  ///< of totals of the values there

  /// Multiplies in place.
  at::Tensor multiplied() const;
};

/// The scale for tensors on `where`: scale_value on the CPU. On CUDA one element on that device, or a 0-dimensional one
/// on the CPU, as torch allows; that it is finite is then not checked.
Scale scale_of(const char* op, const char* name, const at::Tensor& scale, at::Device where);

}  // namespace bie::ops
