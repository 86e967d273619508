// Weights of packed codes as floats, and back. The product is in bie/ops.h.
#pragma once

#include "bie/ops.h"

namespace bie::ops {

/// W [k, n] of a weight of codes, in float32 and rounded once to `dtype`. @throws as weight_only_linear.
BIE_API at::Tensor weight_only_open(const CodedWeightTensors& weight, std::int64_t in_features,
                                    at::ScalarType dtype = at::kFloat);
/// The words of a float W [k, n] by the scales, zeros, groups and order of `weight`, each code rounded to the nearest
/// and to even; its qweight is not read. @throws NaN or infinity.
BIE_API at::Tensor weight_only_pack(const at::Tensor& values, const CodedWeightTensors& weight);

/// Scales and zeros [groups, n] float32 of a float weight [n, k]: at 2 bits and more scale = (max - min) / (2^bits - 1)
/// and zero = -min of a group; at 1 bit scale = 2d and zero = d - m with the group's mean m and the mean distance d
/// from it. Then W ~ scale * q - zero.
BIE_API std::tuple<at::Tensor, at::Tensor> weight_only_ranges(const at::Tensor& weight, std::int64_t bits,
                                                              std::int64_t group_size);

}  // namespace bie::ops
