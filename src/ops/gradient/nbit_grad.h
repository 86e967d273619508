// Backward pieces shared by the 8- and 4-bit layers: the derivative of a learned-step quantiser, one fused pass per
// function. Float tensors are dense float32.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/ops.h"
#include "ops/backend/input_gradients.h"
#include "ops/quantize/quantizers.h"

namespace bie::ops {

/// For InputGradients, of an activation that is quantised to codes, clamp(rint(xs / max(scale, floor))).
/// Source: docs/spec/nbit-linear.md#backward-at-8-bits, docs/spec/nbit-linear.md#q4linear.
kernels::InputRule code_rule(const at::Tensor& xs, const CodeRange& range, GradMode mode, float floor);

/// Step size of a float weight: its codes are clamp(rint(w / max(scale, floor))) and stand for code * scale.
struct WeightStep {
  Scale scale;
  float floor = 0;
};
/// Takes the scale from scale_w, or from the weight if that is undefined.
WeightStep weight_step(const char* op, const at::Tensor& weight, const at::Tensor& scale_w, double eps,
                       const CodeRange& range);

/// See Gradients: clamp(rint(x / max(scale, floor))) * by, and float(code) * scale.
at::Tensor quantized_values(const at::Tensor& x, const Scale& scale, float floor, const CodeRange& range,
                            const Scale& by, at::ScalarType dtype = at::kFloat);

at::Tensor code_values(const at::Tensor& codes, const Scale& scale, at::ScalarType dtype = at::kFloat);

/// Zeros in grad where the float weight lies outside the range of its quantiser.
at::Tensor mask_clipped(at::Tensor grad, const at::Tensor& weight, const WeightStep& step, const CodeRange& range);

}  // namespace bie::ops
