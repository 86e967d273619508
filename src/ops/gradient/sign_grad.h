// What the backward pass of a layer of signs needs. Float tensors are dense float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/backend/input_gradients.h"
#include "ops/backend/products.h"

namespace bie::ops {

/// See Gradients.
at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype = at::kFloat);

/// A tensor whose signs count, in a product.
Factor factor_of_signs(const at::Tensor& t);

/// The gradients of an activation that is quantised to its signs; see InputGradients. The denominator of the gradient
/// of scale_a is sqrt(numel(xs)). Source: docs/spec/binary-linear.md#backward.
at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& scale);
InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, bool want_codes);

}  // namespace bie::ops
