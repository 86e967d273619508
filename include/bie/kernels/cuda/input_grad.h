// The gradients of a quantised activation on CUDA, one pass over it (docs/spec/binary-linear.md#backward,
// docs/spec/nbit-linear.md#backward-at-8-bits), in the CPU's order of operations but for sums. Clips divide by scale_a,
// or by the smallest normal float32 where that is 0.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/dtype.h"
#include "bie/kernels/input_grad.h"

namespace bie::kernels::cuda {

/// The gradient of a layer's output, sent back through its weight: up * gain, up [rows, columns] in float32, the sum of
/// `up_parts` arrays. A backward pass makes of it the gradients of an activation x [rows, columns], quantised as xs = x
/// + bias.
struct InputPass {
  std::int64_t rows, columns;
  const float* up;
  int up_parts;  ///< 1 or more, rows * columns elements after one another
  Scalar gain;
  const void* x;
  Dtype x_dtype;       ///< f32, bf16 or f16
  const float* bias;   ///< [columns], or null
  void* grad_x;        ///< like x; may be `up` where x is float32
  float* grad_bias;    ///< [columns]: the sums of grad_x before it is rounded; or null
  float* grad_scale;   ///< []
  std::int8_t* codes;  ///< of xs [rows, columns], for the weight's gradient; or null
};

/// Bytes of the workspace of an input pass whose shape, bias and grad_bias are set; from an 8-byte boundary on.
std::int64_t input_pass_bytes(const InputPass&);

/// Signs: grad_x = up * gain where |xs / scale_a| <= 1 and 0 elsewhere, grad_scale = sum(grad_x * sgn(xs)) /
/// denominator, codes = sgn(xs). Codes: the gradients of q = clamp(rint(xs / scale_a)), which grad_x passes inside the
/// bounds; codes are clamp(rint(xs / max(scale_a, floor))).
Status input_grads(const InputPass&, const InputRule&, const Scalar& scale_a, void* workspace, const Queue&);

}  // namespace bie::kernels::cuda
