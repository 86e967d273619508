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

/// float(c * mean|x|), the mean in float64.
float mean_step(const char* op, const at::Tensor& x, double c);

/// int8 codes of a float tensor with true division by `step` > 0, same shape, dense.
at::Tensor quantize_codes(const char* op, const at::Tensor& x, float step, const CodeRange& range);

/// ValueError naming the tensor where int8 codes lie outside the range. One pass.
void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range);

}  // namespace bie::ops
