// The values that backward passes multiply, element by element, on CUDA, in the CPU's order of operations
// (docs/spec/binary-linear.md#backward, docs/spec/nbit-linear.md#backward-at-8-bits). Arrays are float32 unless a dtype
// says f16 or bf16, or s8.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/dtype.h"
#include "bie/kernels/gradient.h"

namespace bie::kernels::cuda {

/// out = clamp(rint(x / step)) * by.
Status quantized_values(const float* x, std::int64_t count, const Scalar& scale, const CodeBounds&, const Scalar& by,
                        void* out, Dtype out_dtype, const Queue&);

/// out = code * scale.
Status code_values(const std::int8_t* codes, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue&);

/// grad = 0 where w / step lies outside [lo, hi].
Status mask_clipped(float* grad, const float* w, std::int64_t count, const Scalar& scale, const CodeBounds&,
                    const Queue&);

/// out = sgn(t) * scale. t and out: f32, bf16, f16 or s8, for which the product is a code.
Status sign_values(const void* t, Dtype dtype, std::int64_t count, const Scalar& scale, void* out, Dtype out_dtype,
                   const Queue&);

}  // namespace bie::kernels::cuda
