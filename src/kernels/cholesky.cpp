#include "bie/kernels/cholesky.h"

#include <algorithm>
#include <cmath>

#include "bie/kernels/double_gemm.h"
#include "bie/kernels/isa.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t block = 32;

/// x - a . b of `count` numbers, in order, each operation rounded.
double less_products(double x, const double* a, const double* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) x = x - a[i] * b[i];
  return x;
}

/// The factor of the square block that begins at `d`, rows n apart.
bool factor(double* d, std::int64_t size, std::int64_t n) {
  for (std::int64_t j = 0; j < size; ++j) {
    double* const row = d + j * n;
    const double square = less_products(row[j], row, row, j);
    if (!(square > 0) || !std::isfinite(square)) return false;
    row[j] = std::sqrt(square);
    for (std::int64_t i = j + 1; i < size; ++i) {
      double* const below = d + i * n;
      below[j] = less_products(below[j], below, row, j) / row[j];
    }
  }
  return true;
}

}  // namespace

bool cholesky(double* a, std::int64_t n, const Parallel& parallel) {
  const DoubleGemmKernel& gemm = choose(double_gemm_table(), DoubleGemm{}, host().isas);
  for (std::int64_t at = 0; at < n; at += block) {
    const std::int64_t size = std::min(block, n - at), after = at + size, left = n - after;
    const double* const d = a + at * n + at;
    if (!factor(a + at * n + at, size, n)) return false;
    parallel_for(parallel, left, 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = after + begin; i < after + end; ++i) {
        double* const row = a + i * n + at;
        for (std::int64_t j = 0; j < size; ++j) row[j] = less_products(row[j], row, d + j * n, j) / d[j * n + j];
      }
    });
    // The block's products are taken from what is right and below, a block of rows at a time as far as the diagonal.
    for (std::int64_t row = after; row < n; row += block) {
      const std::int64_t rows = std::min(block, n - row);
      const double* const of_rows = a + row * n + at;
      gemm.run({rows,
                row + rows - after,
                size,
                {of_rows, n, 1},
                {a + after * n + at, 1, n},
                a + row * n + after,
                n,
                /*subtract=*/true},
               parallel);
    }
  }
  return true;
}

}  // namespace bie::kernels
