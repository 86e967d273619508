// Products of a gradient and codes on CUDA, by the kernels of bie/kernels/cuda/mixed_product.h where the GPU has one.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "bie/kernels/cuda/mixed_product.h"
#include "ops/backend/products.h"

namespace bie::ops::cuda {

/// The numbers as floats, dense in the codes' memory format.
at::Tensor opened(const Codes& codes, at::ScalarType dtype);

/// Floats of 16 bits whose sum is a gradient on CUDA, dense in its memory format: itself, or of float32 three bfloat16,
/// 24 bits. On GPUs before sm_80 float32.
std::vector<at::Tensor> float_parts(const char* op, const at::Tensor& g);

/// The product's kind and sizes say what `parts` and `codes`, both dense, are: float32 of `sizes`, times the scale.
/// Undefined values where the GPU has no kernel. want_totals: those that int8_codes needs.
Scaled mixed_product(const char* op, kernels::cuda::MixedProduct product, const std::vector<at::Tensor>& parts,
                     const Codes& codes, const Scale& scale, at::IntArrayRef sizes, bool want_totals);

/// InputGradients::of_layer of such a product; nothing where the GPU has no kernel.
std::optional<InputGrads> mixed_input_grads(const char* op, kernels::cuda::MixedProduct product,
                                            const std::vector<at::Tensor>& parts, const Codes& codes,
                                            const Scale& scale, const LinearInput& in, const kernels::InputRule& rule,
                                            bool want_codes);

}  // namespace bie::ops::cuda
