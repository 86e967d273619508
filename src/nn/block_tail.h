// What follows a product in evaluation, in one pass over its results: at a small net's sizes torch's operators for it
// take longer than a product of few bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "bie/nn/models.h"

namespace bie::nn {

/// The statistics and, where it learns any, the numbers of a BatchNorm in evaluation.
struct NormNumbers {
  at::Tensor mean, var, weight, bias;
  double eps = 0;
};

/// With one slope for all channels. none: v, relu: max(v, 0), prelu: v < 0 ? slope * v : v.
struct TailActivation {
  Activation kind = Activation::none;
  at::Tensor slope;  ///< of prelu, one element
};

/// Whether block_tail() computes it: float32 on the CPU, dense as [rows, channels], NCHW or channels_last, with no
/// gradient wanted.
bool has_block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                    const TailActivation& act);

/// pool(act((x - mean) / sqrt(var + eps) * weight + bias + shortcut)), as torch computes it in float32: x * a + b with
/// a = weight / sqrt(var + eps) and b = bias - mean * a. `shortcut` (of x's shape and layout) and the norm may be
/// undefined. The pool takes the largest of each pool x pool square, the rest at the edges left out; 1: none.
at::Tensor block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                      const TailActivation& act, std::int64_t pool);

}  // namespace bie::nn
