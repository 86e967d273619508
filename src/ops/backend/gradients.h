// The values that backward passes multiply, and the sum of integer gradients. Float tensors are dense float32 unless a
// dtype is named.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/kernels/gradient.h"
#include "ops/backend/scales.h"

namespace bie::ops {

class Gradients {
 public:
  /// sgn(t) * scale, dense in t's memory format, in float32 or on CUDA in another float dtype, of a float or int8
  /// tensor (sgn(0) = 0). In int8 the scale is 1.
  virtual at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype) const = 0;
  /// clamp(rint(x / step)) * by, laid out like x, in float32 or on CUDA in another float dtype.
  virtual at::Tensor quantized_values(const at::Tensor& x, const Scale& scale, const kernels::CodeBounds& bounds,
                                      const Scale& by, at::ScalarType dtype) const = 0;
  /// float(code) * scale of int8 codes, dense, in float32 or on CUDA in another float dtype.
  virtual at::Tensor code_values(const at::Tensor& codes, const Scale& scale, at::ScalarType dtype) const = 0;
  /// Sets grad to 0 where w / step lies outside the bounds, in place.
  virtual void mask_clipped(const at::Tensor& grad, const at::Tensor& w, const Scale& scale,
                            const kernels::CodeBounds& bounds) const = 0;
  /// Adds with int8 saturation.
  virtual void accumulate(const at::Tensor& slot, const at::Tensor& grad) const = 0;

 protected:
  ~Gradients() = default;
};

}  // namespace bie::ops
