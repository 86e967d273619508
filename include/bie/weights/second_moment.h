// The second moment of a linear's inputs on a text, which says what errors of its weights do to its outputs.
// Source: docs/spec/quantization.md#what-is-made-small.
#pragma once

#include <cstdint>
#include <vector>

#include "bie/kernels/parallel.h"

namespace bie::weights {

/// Adds x^T . x of x [rows, size] to the upper triangle of sum [size, size], each row's products in the order of the
/// rows by one fused multiply-add each. Below the diagonal numbers of blocks that hold the diagonal change too.
void add_second_moment(const double* x, std::int64_t rows, std::int64_t size, double* sum,
                       const kernels::Parallel& parallel);

/// H = mean of x . x^T in double: each row's products are added in the order of the rows, one fused multiply-add each.
class SecondMoment {
 public:
  explicit SecondMoment(std::int64_t size) : size_(size), sum_(static_cast<std::size_t>(size * size)) {}

  std::int64_t size() const { return size_; }
  /// x [rows, size].
  void add(const float* x, std::int64_t rows, const kernels::Parallel& parallel);
  /// H [size, size], and nothing is left here.
  std::vector<double> take();

 private:
  std::int64_t size_, rows_ = 0;
  std::vector<double> sum_, x_;  ///< of the sum blocks of rows from the diagonal on
};

}  // namespace bie::weights
