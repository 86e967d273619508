// What the backward passes of the 8- and 4-bit layers share: the derivative of a learned-step quantiser.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/ops.h"
#include "ops/quantizers.h"

namespace bie::ops {

struct QuantizerGrad {
  at::Tensor xs;       ///< like xs, float32
  at::Tensor scale_a;  ///< in the scale's own shape and dtype
};

/// Gradients of q = clamp(rint(xs / scale_a)) * scale_a, straight through inside the range, for an incoming `up`.
/// exact: numerics.md section 5; reference: sections 5 (8 bits) and 6 (4 bits).
QuantizerGrad quantizer_backward(const at::Tensor& xs, const at::Tensor& up, const at::Tensor& scale_a,
                                 const CodeRange& range, GradMode mode);

/// Weight codes for training: the float weight quantised with scale_w, computed from the weight where undefined.
struct WeightCodes {
  at::Tensor codes;    ///< int8, shape of the weight
  at::Tensor scale_w;  ///< float32, 0-dim if computed
};
WeightCodes quantize_weight(const char* op, const at::Tensor& weight, const at::Tensor& scale_w, double eps,
                            const CodeRange& range);

/// grad with zeros where the weight lies outside the range of its quantiser.
at::Tensor mask_clipped(const at::Tensor& grad, const at::Tensor& weight, float step, const CodeRange& range);

}  // namespace bie::ops
