#include "bie/weights/second_moment.h"

#include <algorithm>
#include <utility>

#include "bie/kernels/double_gemm.h"
#include "bie/kernels/isa.h"

namespace bie::weights {

void add_second_moment(const double* x, std::int64_t rows, std::int64_t size, double* sum,
                       const kernels::Parallel& parallel) {
  constexpr std::int64_t block = 128;
  const kernels::DoubleGemmKernel& gemm =
      kernels::choose(kernels::double_gemm_table(), kernels::DoubleGemm{}, kernels::host().isas);
  for (std::int64_t at = 0; at < size; at += block) {
    const double* const from = x + at;
    gemm.run(
        {std::min(block, size - at), size - at, rows, {from, 1, size}, {from, size, 1}, sum + at * size + at, size},
        parallel);
  }
}

void SecondMoment::add(const float* x, std::int64_t rows, const kernels::Parallel& parallel) {
  x_.assign(x, x + rows * size_);
  add_second_moment(x_.data(), rows, size_, sum_.data(), parallel);
  rows_ += rows;
}

std::vector<double> SecondMoment::take() {
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
    return sum_[static_cast<std::size_t>(i * size_ + j)];
  };
  for (std::int64_t i = 0; i < size_; ++i)
    for (std::int64_t j = i; j < size_; ++j) at(j, i) = at(i, j) = at(i, j) / static_cast<double>(rows_);
  x_.clear();
  return std::move(sum_);
}

}  // namespace bie::weights
