// Logarithms of a softmax in double, whose bits no C library decides.
// Source: docs/spec/language-models.md#choice, #against-a-reference.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// A log-probability is `x - most - log_sum`: the largest of a row's numbers, and log(sum of exp(x - most)), the sum in
/// the order of the row.
struct LogSum {
  double most, log_sum;

  double of(float x) const { return static_cast<double>(x) - most - log_sum; }
};

/// @param x  [n] without a NaN. `log_sum` is NaN where the largest is infinite.
LogSum log_sum_of(const float* x, std::int64_t n);

/// Computes them for each row of x [rows, n]; `log_sum` is NaN where the row has a NaN.
void log_sums(const float* x, std::int64_t rows, std::int64_t n, LogSum* y, const Parallel&);

/// The k largest of each row's log-probabilities: ids [rows, k] in falling order, equals by index, their logarithms
/// [rows, k], and the logarithm of what all others have together [rows], -infinity where it is 0.
/// @param x  [rows, n], without NaN and with a finite largest number in each row.
/// @param k  1 to n.
void best_log_probabilities(const float* x, std::int64_t rows, std::int64_t n, std::int64_t k, std::int32_t* ids,
                            double* logs, double* rest, const Parallel&);

/// y[i] = sum of p (ln p - ln q) over the k tokens of row i and, as one, over all others: q of the row x[i], p from
/// exp(logs[i]) and exp(rest[i]), divided by their sum. Where p is 0 the addend is; where only q is, it is infinite.
/// @param x    as above.
/// @param ids  [rows, k], 0 to n - 1, none twice in a row.
void divergences(const float* x, std::int64_t rows, std::int64_t n, std::int64_t k, const std::int32_t* ids,
                 const double* logs, const double* rest, double* y, const Parallel&);

}  // namespace bie::kernels
