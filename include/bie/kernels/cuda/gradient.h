// What the layers' backward passes do to each element, on CUDA: the formulas of numerics.md sections 3 and 5, one pass
// a function, in the CPU's order of operations. Float arrays are float32 unless a dtype says f16 or bf16. Clips divide
// by scale_a, or by the smallest normal float32 where that is 0.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/cuda/quantize.h"
#include "bie/kernels/dtype.h"

namespace bie::kernels::cuda {

/// The codes of a quantiser: its step is max(scale, floor).
struct CodeBounds {
  float lo, hi, floor;
};

/// out = clamp(rint(x / step)) * by.
Status quantized_values(const float* x, std::int64_t count, const Scalar& scale, const CodeBounds&, const Scalar& by,
                        void* out, Dtype out_dtype, const Queue&);

/// out = code * scale.
Status code_values(const std::int8_t* codes, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue&);

/// grad = 0 where w / step lies outside [lo, hi].
Status mask_clipped(float* grad, const float* w, std::int64_t count, const Scalar& scale, const CodeBounds&,
                    const Queue&);

/// How the gradient of scale_a is summed.
struct StepRule {
  bool exact;          ///< its terms take `up` as it comes, not clipped
  bool scaled;         ///< `up` is multiplied by scale_a
  double denominator;  ///< of the sum
};
/// `up` becomes the gradient of xs of a learned-step quantiser, *grad_scale that of scale_a.
/// @param workspace  reduction_bytes, from an 8-byte boundary on.
Status quantizer_backward(float* up, const float* xs, std::int64_t count, const Scalar& scale, const CodeBounds&,
                          const StepRule&, float* grad_scale, void* workspace, const Queue&);

/// out = sgn(t) * scale. t: f32, bf16, f16 or s8.
Status sign_values(const void* t, Dtype dtype, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue&);

/// `up` becomes up * scale_w where |xs / scale_a| <= 1 and 0 elsewhere, *grad_scale = sum(up * sgn(xs)) / denominator.
Status sign_backward(float* up, const float* xs, std::int64_t count, const Scalar& scale_a, const Scalar& scale_w,
                     double denominator, float* grad_scale, void* workspace, const Queue&);

}  // namespace bie::kernels::cuda
