// Step sizes from values: the search behind quantisation without training.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/string_view.h>

#include <cstdint>

#include "bie/ops.h"

namespace bie::ops {

/// For each slice along the first axis of float values the step size of codes of 8 or 4 bits: by the rule "mse" that of
/// the least mean square error, by "percentile" that which puts this percentile of the magnitudes on the largest code.
/// float32 [values.size(0)], on the values' device. In Python: torch.ops.bie.step_sizes.
/// @throws c10::ValueError for other dtypes, bits, rules and percentiles.
BIE_API at::Tensor step_sizes(const at::Tensor& values, std::int64_t bits, c10::string_view rule, double percentile);

}  // namespace bie::ops
