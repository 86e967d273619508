// The backward pass of a convolution.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>

#include "ops/backend/input_gradients.h"
#include "ops/backend/products.h"
#include "ops/conv2d/conv2d_geometry.h"

namespace bie::ops {

/// Operands of a convolution's backward pass, in the form that all kinds of convolutions share.
struct ConvGradCall {
  const char* op;
  at::Tensor g;
  at::Tensor x;  ///< floats, or codes, which want no gradient
  at::Tensor bias, bias_a, scale_a;
  Scale scale;  ///< the value of scale_a
  Movement move;
  bool pads_with_minus_one = false;
  Factor filter = {};  ///< [out_c, in_c/groups, kh, kw]
  Scale filter_scale = {};
  /// Values of the activation x + bias, or of its codes, times `by`.
  std::function<at::Tensor(const at::Tensor& xs, const Scale& by)> values = {};
  /// Whether the CPU multiplies plain numbers, as CUDA does, and leaves the scales to the passes behind the products.
  bool scales_behind = false;
  kernels::InputRule rule = {};  ///< of the activation's gradients
  /// Finishes the weight's gradient; empty if it is not wanted.
  std::function<at::Tensor(const Scaled& grad)> of_weight = {};
};

class ConvGrads {
 public:
  virtual Grads run(const ConvGradCall& call) const = 0;

 protected:
  ~ConvGrads() = default;
};

}  // namespace bie::ops
