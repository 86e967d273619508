#include "bie/kernels/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bie/kernels/exact_math.h"

namespace bie::kernels {

LogSum log_sum_of(const float* x, std::int64_t n) {
  const auto most = static_cast<double>(*std::max_element(x, x + n));
  if (!std::isfinite(most)) return {most, std::numeric_limits<double>::quiet_NaN()};
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double away = static_cast<double>(x[i]) - most;
    if (away >= -700) sum += exact_exp(away);  // far below float32's least
  }
  return {most, exact_log(sum)};
}

void log_probabilities(const float* x, std::int64_t rows, std::int64_t n, const std::int32_t* picked, double* y,
                       const Parallel& parallel) {
  parallel_for(parallel, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const row = x + i * n;
      const bool has_nan = std::any_of(row, row + n, [](float v) { return std::isnan(v); });
      const LogSum all = has_nan ? LogSum{} : log_sum_of(row, n);
      y[i] = has_nan ? std::numeric_limits<double>::quiet_NaN()
                     : static_cast<double>(row[picked[i]]) - all.most - all.log_sum;
    }
  });
}

}  // namespace bie::kernels
