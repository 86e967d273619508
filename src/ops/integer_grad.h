// The gradient rule for integer weights: what the backward pass of a layer shares with the others.
#pragma once

#include <ATen/core/Tensor.h>

namespace bie::ops {

/// An anchor is an empty float tensor, and its operator runs eagerly: a traced graph would lose the weight's gradient
/// without a word. A sentence otherwise.
void check_anchor(const char* op, const at::Tensor& x, const at::Tensor& anchor);

/// The gradient of a weight: written into an integer weight's .grad (int8 by the rule of int8_grad, saturating when it
/// accumulates, or the unquantised sum where weight.grad_dtype is a float type or None), handed on as the return value
/// for a float one.
at::Tensor weight_grad(const at::Tensor& weight, const at::Tensor& grad);

/// The operators define first derivatives only.
void refuse_double_backward(const char* op);

}  // namespace bie::ops
