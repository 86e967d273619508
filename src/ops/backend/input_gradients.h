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

/// Gradients in the dtypes of their tensors; undefined if there is no such tensor.
struct InputGrads {
  at::Tensor x, bias_a, scale_a;
  /// Right operand of the weight's gradient, [m, k]: x + bias in float32 on the CPU; on CUDA its int8 codes, if wanted.
  at::Tensor operand;
};

class InputGradients {
 public:
  /// Turns the values of `up`, the gradient that came back, into that of xs: of signs up where |xs / scale_a| <= 1, of
  /// codes straight through inside their range, 0 elsewhere. Returns the gradient of scale_a in its own shape and
  /// dtype. A scale_a of 0 divides as the smallest float32 does.
  virtual at::Tensor in_place_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale,
                               const kernels::InputRule& rule) const = 0;
  /// All gradients of a linear layer's activation from `up` [m, k]. want_codes: the activation's signs or codes, on
  /// CUDA.
  virtual InputGrads of_layer(const Scaled& up, const LinearInput& in, const kernels::InputRule& rule,
                              bool want_codes) const = 0;

 protected:
  ~InputGradients() = default;
};

}  // namespace bie::ops
