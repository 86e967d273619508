// Backward pieces of the 1-bit layers. Float tensors are dense float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/backend/input_gradients.h"
#include "ops/backend/products.h"

namespace bie::ops {

/// See Gradients.
at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype = at::kFloat);

/// A tensor whose signs count, in a product.
Factor factor_of_signs(const at::Tensor& t);

/// For InputGradients, of an activation that is quantised to its signs. The denominator of the gradient of scale_a is
/// sqrt(numel(xs)). Source: docs/spec/binary-linear.md#backward.
kernels::InputRule sign_rule(const at::Tensor& xs);

}  // namespace bie::ops
