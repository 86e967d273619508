// Logarithms of a softmax in double, whose bits no C library decides. Source: docs/spec/language-models.md#choice.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// m, the largest of n numbers without a NaN, and log(sum of exp(x - m)), the sum in their order; NaN where m is
/// infinite.
struct LogSum {
  double most, log_sum;
};
LogSum log_sum_of(const float* x, std::int64_t n);

/// y[i] = x[i][picked[i]] - m - log(sum of exp(x[i] - m)) of row i of x [rows, n]; NaN where the row has a NaN or no
/// finite largest number.
void log_probabilities(const float* x, std::int64_t rows, std::int64_t n, const std::int32_t* picked, double* y,
                       const Parallel&);

}  // namespace bie::kernels
