// Products of doubles and the factor made of them: every kernel and number of threads gives the same bits.
#include "bie/kernels/double_gemm.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "bie/kernels/cholesky.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

std::vector<double> random_doubles(std::int64_t count, ReplayableRng& rng) {
  const Elements floats = random_elements(Dtype::f32, 2 * count, 2, rng);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(floats.get(2 * i)) + 0x1p-25 * static_cast<double>(floats.get(2 * i + 1)));
  return values;
}

TEST(DoubleGemm, EverySizeInTheWrittenOrder) {
  ReplayableRng rng;
  for (const auto& sizes : std::vector<std::array<std::int64_t, 3>>{
           {1, 1, 1}, {3, 25, 5}, {4, 12, 129}, {9, 24, 64}, {130, 11, 257}, {0, 3, 4}, {2, 3, 0}, {31, 50, 7}}) {
    const std::int64_t m = sizes[0], n = sizes[1], k = sizes[2], c_row = n + 3;
    const std::vector<double> a = random_doubles(m * k, rng), b = random_doubles(n * k, rng),
                              before = random_doubles(m * c_row, rng);
    for (const bool turned : {false, true})
      for (const bool subtract : {false, true}) {
        const DoubleMatrix of_a{a.data(), turned ? 1 : k, turned ? m : 1},
            of_b{b.data(), turned ? 1 : n, turned ? k : 1};
        std::vector<double> wanted = before;
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            for (std::int64_t p = 0; p < k; ++p) {
              const double x = of_a.data[i * of_a.row + p * of_a.column], y = of_b.data[p * of_b.row + j * of_b.column];
              double& sum = wanted[static_cast<std::size_t>(i * c_row + j)];
              sum = std::fma(subtract ? -x : x, y, sum);
            }
        for_every_pool([&](const Parallel& parallel) {
          for_every_kernel(double_gemm_table(), [&](const DoubleGemmKernel& kernel) {
            std::vector<double> c = before;
            ASSERT_EQ(kernel.run({m, n, k, of_a, of_b, c.data(), c_row, subtract}, parallel), Status::ok);
            ASSERT_EQ(c, wanted) << m << "x" << n << "x" << k << (turned ? ", turned" : "");
          });
        });
        if (HasFatalFailure()) return;
      }
  }
}

TEST(DoubleGemm, RefusesNegativeSizes) {
  for_every_kernel(double_gemm_table(), [](const DoubleGemmKernel& kernel) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{-1, 1, 1}, {1, -1, 1}, {1, 1, -1}})
      EXPECT_EQ(kernel.run({m, n, k, {nullptr, 1, 1}, {nullptr, 1, 1}, nullptr, 1, false}, serial()),
                Status::bad_shape);
  });
}

/// X^T . X of more rows than columns, and something on the diagonal.
std::vector<double> positive_definite(std::int64_t n, ReplayableRng& rng) {
  const std::vector<double> x = random_doubles((n + 3) * n, rng);
  std::vector<double> a(static_cast<std::size_t>(n * n));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double& sum = a[static_cast<std::size_t>(i * n + j)];
      for (std::int64_t p = 0; p < n + 3; ++p)
        sum += x[static_cast<std::size_t>(p * n + i)] * x[static_cast<std::size_t>(p * n + j)];
      if (i == j) sum += 0.5;
    }
  return a;
}

TEST(Cholesky, TheFactorTimesItselfIsTheMatrixAndThreadsDoNotChangeIt) {
  ReplayableRng rng;
  for (const std::int64_t n : {1, 2, 63, 64, 65, 200}) {
    const std::vector<double> a = positive_definite(n, rng);
    std::vector<double> first = a;
    ASSERT_TRUE(cholesky(first.data(), n, serial()));
    const auto at = [&](std::int64_t i, std::int64_t j) { return first[static_cast<std::size_t>(i * n + j)]; };
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (std::int64_t p = 0; p <= j; ++p) sum += at(i, p) * at(j, p);
        ASSERT_NEAR(sum, a[static_cast<std::size_t>(i * n + j)], 1e-9 * static_cast<double>(n)) << i << ", " << j;
      }
    for_every_pool([&](const Parallel& parallel) {
      std::vector<double> again = a;
      ASSERT_TRUE(cholesky(again.data(), n, parallel));
      ASSERT_EQ(again, first);
    });
  }
}

TEST(Cholesky, SaysWhereAMatrixHasNoFactor) {
  ReplayableRng rng;
  std::vector<double> a = positive_definite(70, rng);
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<double> other = a;
    other[69 * 70 + 69] = bad;
    EXPECT_FALSE(cholesky(other.data(), 70, serial())) << bad;
  }
  std::vector<double> zeros(4);
  EXPECT_FALSE(cholesky(zeros.data(), 2, serial()));
}

}  // namespace
}  // namespace bie::kernels::test
