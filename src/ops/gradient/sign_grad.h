// What the backward pass of a layer of signs needs, one fused pass a function. Float tensors are dense float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/backend/cuda/mixed_product.h"
#include "ops/bridge.h"
#include "ops/gradient/input_grad.h"

namespace bie::ops {

/// sgn(t) * scale, dense in t's memory format, in float32 or on CUDA in another float dtype or int8, of a float or
/// int8 tensor (sgn(0) = 0).
at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype = at::kFloat);

/// The signs of a float or int8 tensor on CUDA, dense, for a product.
Codes codes_of_signs(const at::Tensor& t);

/// Turns the values of `up` = g . (sgn(w) * scale_w) into up where |xs / scale_a| <= 1 and 0 elsewhere, and returns the
/// gradient of scale_a, sum(grad_xs * sgn(xs)) / sqrt(numel(xs)), in its own shape and dtype. A scale_a of 0 divides as
/// the smallest float32 does. Source: numerics.md section 3.
at::Tensor sign_backward_(const Scaled& up, const at::Tensor& xs, const at::Tensor& scale_a, const Scale& sa);

/// The same for a linear layer, `up` [m, k]. want_codes: the activation's signs, on CUDA.
InputGrads sign_input_grads(const Scaled& up, const LinearInput& in, bool want_codes);

}  // namespace bie::ops
