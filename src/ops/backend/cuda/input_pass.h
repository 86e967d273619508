// The pass that makes an activation's gradients on CUDA, and what it writes.
#pragma once

#include "bie/kernels/cuda/input_grad.h"
#include "ops/backend/input_gradients.h"

namespace bie::ops::cuda {

/// `pass` lacks the gradient that came through the weight: up, up_parts and gain.
struct PlannedInputPass {
  /// grad_x: dense and of x's order.
  PlannedInputPass(const LinearInput& in, at::Tensor grad_x, bool want_codes);

  /// The gradients, once the pass is queued.
  InputGrads grads() const;

  kernels::cuda::InputPass pass{};

 private:
  InputGrads grads_;
  at::Tensor bias_a_, scale_a_;        ///< as the layer has them
  at::Tensor grad_scale_, grad_bias_;  ///< float32
};

}  // namespace bie::ops::cuda
