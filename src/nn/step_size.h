// The constants of the 8- and 4-bit layers' step sizes (numerics.md sections 2, 5 and 6).
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "bie/ops.h"

namespace bie::nn {

inline constexpr double q8_step = 2 / 11.269;  ///< first-batch scale_a / mean|x|
inline constexpr double q4_step = 2 / 5.6345;
inline constexpr double step_eps = 1e-5;

/// max(2 * mean|w| / 5.6345, eps)
inline at::Tensor q4_weight_scale(const at::Tensor& weight) {
  return std::get<1>(ops::q4_quantize(weight)).clamp_min_(step_eps);
}

}  // namespace bie::nn
