// Step sizes and quantisers that the layers' operators share with the public ones.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/bridge.h"

namespace bie::ops {

/// What a q8 or q4 layer's quantiser is made of.
struct CodeRange {
  int lo, hi;
  double mean_to_step;  ///< step size = mean_to_step * mean|x|
};

inline constexpr CodeRange q8_range{-128, 127, 2 / 11.269};
inline constexpr CodeRange q4_range{-8, 7, 2 / 5.6345};

/// ValueError unless eps is a positive number.
void check_eps(const char* op, double eps);

/// max(float(c * mean|x|), floor), the mean in float64. Where x holds NaN or infinity, a ValueError that calls it
/// `name` on the CPU, and NaN on CUDA.
Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor = 0);

/// int8 codes of a float tensor with true division by max(scale, floor) > 0, same shape, dense. NaN has no code: on the
/// CPU it is a ValueError, as infinity is, on CUDA 0.
at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor, const CodeRange& range);

/// What int8_grad makes of a dense float gradient.
at::Tensor int8_codes(const Scaled& grad);

/// ValueError naming the tensor where int8 codes lie outside the range. One pass. On CUDA nothing is checked: it would
/// wait for the device, and the kernels there take such a code as the nearest bound.
void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range);

}  // namespace bie::ops
