// Step sizes and quantisers that the layers' operators share with the public ones.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/backend/quantizers.h"

namespace bie::ops {

inline constexpr CodeRange q8_range{-128, 127, 2 / 11.269};
inline constexpr CodeRange q4_range{-8, 7, 2 / 5.6345};

/// Throws a ValueError unless eps is a positive number.
void check_eps(const char* op, double eps);

// See backend/quantizers.h.

Scale mean_scale(const char* op, const char* name, const at::Tensor& x, double c, float floor = 0);

at::Tensor quantize_codes(const char* op, const at::Tensor& x, const Scale& scale, float floor, const CodeRange& range);

/// int8_grad of a dense float gradient.
at::Tensor int8_codes(const Scaled& grad);

/// One pass, and none where int8 holds no other codes.
void check_codes(const char* op, const char* name, const at::Tensor& codes, const CodeRange& range);

}  // namespace bie::ops
