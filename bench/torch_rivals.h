// torch's own low-bit operators as contenders.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "bench/race.h"

namespace bie::bench {

/// x [m, k] and w [n, k] in float32: bfloat16 linear, linear_dynamic of every engine that is there (int8 weights, codes
/// of x found in the call, float32 out) and _int_mm (codes in, int32 out). Products that torch refuses are left out.
void add_linear_rivals(const at::Tensor& x, const at::Tensor& w, std::vector<Contender>& contenders);

/// The same for batches of images: float32 and bfloat16 in channels_last, and quantized::conv2d of every engine, codes
/// in and out, and float32 in and out as ours ("of float32").
void add_conv2d_rivals(const at::Tensor& x, const at::Tensor& w, std::int64_t stride, std::int64_t pad,
                       std::int64_t groups, std::vector<Contender>& contenders);

}  // namespace bie::bench
