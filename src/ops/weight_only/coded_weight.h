// The arguments that every operator on a weight of packed codes has, and what they mean.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/backend/weight_only.h"
#include "ops/dispatcher.h"

namespace bie::ops {

/// qweight, scales, zeros, bits, group_size, g_idx, q_perm and bit_rows of the schemas.
struct WeightArgs {
  at::Tensor qweight, scales;
  OptTensor zeros;
  std::int64_t bits, group_size;
  OptTensor g_idx, q_perm;
  at::OptionalIntArrayRef bit_rows;
};

/// bit_rows of a list, which has to outlive it: none where the list is empty.
inline at::OptionalIntArrayRef bit_rows_of(const std::vector<std::int64_t>& list) {
  return list.empty() ? at::OptionalIntArrayRef() : at::OptionalIntArrayRef(list);
}

/// Refuses unless shapes and dtypes fit a weight of k input features. Reads no values, and is fit for meta tensors.
void check_weight_args(const char* op, const WeightArgs& a, std::int64_t k);

/// The weight, once its values are checked; `looks` = false trusts them, as panels were made of them. On meta the sizes
/// alone.
CodedWeight coded_weight(const char* op, const WeightArgs& a, std::int64_t k, bool looks = true);

}  // namespace bie::ops
