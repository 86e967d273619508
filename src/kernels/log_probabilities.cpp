#include "bie/kernels/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "bie/kernels/exact_math.h"

namespace bie::kernels {
namespace {

/// e^x; 0 far below float32's least.
double exp_or_zero(double x) { return x < -700 ? 0 : exact_exp(x); }

double log_or_infinity(double x) { return x > 0 ? exact_log(x) : -std::numeric_limits<double>::infinity(); }

/// The logarithm of what the tokens that are not picked have together, the sum in their order.
class Others {
 public:
  explicit Others(std::int64_t n) : is_picked_(static_cast<std::size_t>(n)) {}

  double log_of(const float* x, const LogSum& all, const std::int32_t* picked, std::int64_t k) {
    for (std::int64_t j = 0; j < k; ++j) is_picked_[static_cast<std::size_t>(picked[j])] = true;
    double sum = 0;
    for (std::size_t i = 0; i < is_picked_.size(); ++i)
      if (!is_picked_[i]) sum += exp_or_zero(static_cast<double>(x[i]) - all.most);
    for (std::int64_t j = 0; j < k; ++j) is_picked_[static_cast<std::size_t>(picked[j])] = false;
    return log_or_infinity(sum) - all.log_sum;
  }

 private:
  std::vector<char> is_picked_;
};

double addend(double p, double log_p, double log_q) { return p == 0 ? 0 : p * (log_p - log_q); }

}  // namespace

LogSum log_sum_of(const float* x, std::int64_t n) {
  const auto most = static_cast<double>(*std::max_element(x, x + n));
  if (!std::isfinite(most)) return {most, std::numeric_limits<double>::quiet_NaN()};
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += exp_or_zero(static_cast<double>(x[i]) - most);
  return {most, exact_log(sum)};
}

void log_sums(const float* x, std::int64_t rows, std::int64_t n, LogSum* y, const Parallel& parallel) {
  parallel_for(parallel, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const row = x + i * n;
      const bool has_nan = std::any_of(row, row + n, [](float v) { return std::isnan(v); });
      y[i] = has_nan ? LogSum{0, std::numeric_limits<double>::quiet_NaN()} : log_sum_of(row, n);
    }
  });
}

void best_log_probabilities(const float* x, std::int64_t rows, std::int64_t n, std::int64_t k, std::int32_t* ids,
                            double* logs, double* rest, const Parallel& parallel) {
  parallel_for(parallel, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(n));
    Others others(n);
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const row = x + i * n;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [row](std::int32_t a, std::int32_t b) {
        return row[a] > row[b] || (row[a] == row[b] && a < b);
      });
      std::copy_n(order.begin(), k, ids + i * k);
      const LogSum all = log_sum_of(row, n);
      for (std::int64_t j = 0; j < k; ++j) logs[i * k + j] = all.of(row[ids[i * k + j]]);
      rest[i] = others.log_of(row, all, ids + i * k, k);
    }
  });
}

void divergences(const float* x, std::int64_t rows, std::int64_t n, std::int64_t k, const std::int32_t* ids,
                 const double* logs, const double* rest, double* y, const Parallel& parallel) {
  parallel_for(parallel, rows, 1, [&](std::int64_t begin, std::int64_t end) {
    Others others(n);
    for (std::int64_t i = begin; i < end; ++i) {
      const float* const row = x + i * n;
      const double* const of = logs + i * k;
      const LogSum all = log_sum_of(row, n);
      double sum = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += exp_or_zero(of[j]);
      sum += exp_or_zero(rest[i]);
      const double log_sum = log_or_infinity(sum);
      double divergence = 0;
      for (std::int64_t j = 0; j < k; ++j)
        divergence += addend(exp_or_zero(of[j]) / sum, of[j] - log_sum, all.of(row[ids[i * k + j]]));
      const double share = exp_or_zero(rest[i]) / sum;
      if (share > 0) divergence += addend(share, rest[i] - log_sum, others.log_of(row, all, ids + i * k, k));
      y[i] = divergence;
    }
  });
}

}  // namespace bie::kernels
