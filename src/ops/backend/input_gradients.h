// The gradients of a quantised activation, from the gradient that came back through the weight
// (docs/spec/binary-linear.md#backward, docs/spec/nbit-linear.md#backward-at-8-bits).
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "bie/kernels/input_grad.h"
#include "ops/backend/scales.h"

namespace bie::ops {

using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // x, weight, scale_a, bias_a

/// The activation of a linear layer, quantised as x + bias.
struct LinearInput {
  at::Tensor x;        ///< floats [..., k], dense
  at::Tensor bias;     ///< float32 [k], or undefined
  at::Tensor bias_a;   ///< the same as the layer has it
  at::Tensor scale_a;  ///< as the layer has it
  Scale scale;         ///< its value
};

/// Gradients in the dtypes of what they belong to; undefined where there is nothing to belong to.
struct InputGrads {
  at::Tensor x, bias_a, scale_a;
  /// What the weight's gradient multiplies, [m, k]: x + bias in float32 on the CPU; its codes, int8, on CUDA, if
  /// wanted.
  at::Tensor operand;
};

class InputGradients {
 public:
  /// Turns the values of `up` = g . (sgn(w) * scale_w) into up where |xs / scale_a| <= 1 and 0 elsewhere, and returns
  /// the gradient of scale_a, sum(grad_xs * sgn(xs)) / denominator, in its own shape and dtype. A scale_a of 0 divides
  /// as the smallest float32 does.
  virtual at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a,
                                    const Scale& scale, double denominator) const = 0;
  /// The same of q = clamp(rint(xs / scale_a)) * scale_a, straight through inside the range.
  virtual at::Tensor quantizer_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a,
                                         const Scale& scale, const kernels::CodeBounds& bounds,
                                         const kernels::StepRule& rule) const = 0;
  /// Both for a linear layer, `up` [m, k]. want_codes: the activation's signs or codes, on CUDA.
  virtual InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, double denominator,
                                      bool want_codes) const = 0;
  virtual InputGrads quantizer_input_grads(const Scaled& up, const LinearInput& in, const kernels::CodeBounds& bounds,
                                           const kernels::StepRule& rule, bool want_codes) const = 0;

 protected:
  ~InputGradients() = default;
};

}  // namespace bie::ops
