// The gradient rule for integer weights: what the backward pass of a layer shares with the others.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/backend/scales.h"

namespace bie::ops {

/// An anchor is an empty float tensor, and its operator runs eagerly: a traced graph would lose the weight's gradient
/// without a word. A sentence otherwise.
void check_anchor(const char* op, const at::Tensor& x, const at::Tensor& anchor);

/// The dtype that the gradient of a weight is wanted in: a float weight's own; int8 for an integer weight unless its
/// grad_dtype is a float type or None (which means float32).
at::ScalarType weight_grad_dtype(const at::Tensor& weight);

/// A gradient in that dtype, contiguous: int8 by the rule of int8_grad.
at::Tensor weight_grad(const Scaled& grad, at::ScalarType dtype);

/// Adds the gradient to an integer weight's .grad (int8 saturates), or hands a float weight's back to autograd.
at::Tensor delivered(const at::Tensor& weight, const at::Tensor& grad);

/// The operators define first derivatives only.
void refuse_double_backward(const char* op);

}  // namespace bie::ops
