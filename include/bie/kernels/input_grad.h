// The gradients of a quantised activation, one pass over it (docs/spec/binary-linear.md#backward,
// docs/spec/nbit-linear.md#backward-at-8-bits). Clips divide by the scale, or by the smallest normal float32 where that
// is 0.
#pragma once

#include <cstdint>

#include "bie/kernels/gradient.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// The gradient of a layer's output, sent back through its weight, is up * gain; it becomes that of the activation xs.
struct InputPass {
  std::int64_t count;
  const float* xs;  ///< bias included
  float* up;        ///< in; out: the gradient of xs
  float gain;
};

/// How the gradient of the scale of a learned-step quantiser is summed.
struct StepRule {
  bool exact;          ///< its terms take `up` as it comes, not clipped
  bool scaled;         ///< `up` is multiplied by the scale
  double denominator;  ///< of the sum
};

/// How an activation was quantised.
struct InputRule {
  bool signs;        ///< its signs, else codes
  CodeBounds codes;  ///< codes only
  StepRule step;     ///< of codes; of signs its denominator alone means something
};

/// Sums are taken in float64 in an order that depends on the count alone. Status::bad_shape where count is negative.
struct InputGradKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const std::int64_t& count);
  /// grad = up * gain where |xs / scale| <= 1 and 0 elsewhere, grad_scale = sum(grad * sgn(xs)) / denominator.
  Status (*sign_backward)(const InputPass&, float scale, double denominator, double* grad_scale, const Parallel&);
  /// Gradients of q = clamp(rint(xs / scale), lo, hi) * scale. A scale of 0 has the gradient 0. The floor of the bounds
  /// is not read.
  Status (*quantizer_backward)(const InputPass&, float scale, const CodeBounds&, const StepRule&, double* grad_scale,
                               const Parallel&);
};
Table<InputGradKernel> input_grad_table();

}  // namespace bie::kernels
