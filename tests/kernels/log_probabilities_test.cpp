// Logarithms of a softmax: against long double, with numbers far apart, and where there is none.
#include "bie/kernels/log_probabilities.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/elements.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::kernels::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

std::vector<double> found(const std::vector<float>& x, std::int64_t n, const std::vector<std::int32_t>& picked,
                          const Parallel& parallel) {
  std::vector<double> y(picked.size(), -1);
  log_probabilities(x.data(), static_cast<std::int64_t>(picked.size()), n, picked.data(), y.data(), parallel);
  return y;
}

TEST(LogProbabilities, AreThoseOfLongDouble) {
  ReplayableRng rng;
  for (const std::int64_t n : {1, 2, 3, 97, 1000}) {
    constexpr int rows = 5;
    std::vector<float> x(static_cast<std::size_t>(rows * n));
    for (float& v : x) v = static_cast<float>(rng.between(-3000000, 3000000)) * 1e-5f;
    std::vector<std::int32_t> picked;
    for (int i = 0; i < rows; ++i) picked.push_back(static_cast<std::int32_t>((7 * i + 1) % n));
    const std::vector<double> y = found(x, n, picked, serial());
    for (int i = 0; i < rows; ++i) {
      const float* const row = x.data() + i * n;
      long double sum = 0;
      for (std::int64_t j = 0; j < n; ++j) sum += std::exp(static_cast<long double>(row[j]));
      const auto wanted =
          static_cast<double>(static_cast<long double>(row[picked[static_cast<std::size_t>(i)]]) - std::log(sum));
      EXPECT_NEAR(y[static_cast<std::size_t>(i)], wanted, 1e-12) << n << ", " << i;
    }
    ThreadPool pool(3);
    EXPECT_EQ(y, found(x, n, picked, pool.parallel()));
  }
}

TEST(LogProbabilities, NumbersFarApart) {
  const std::vector<float> x{3e38f, -3e38f, 0, -infinity};
  for (const auto& [picked, wanted] :
       std::vector<std::pair<int, double>>{{0, 0.0},
                                           {1, -2 * static_cast<double>(3e38f)},
                                           {2, -static_cast<double>(3e38f)},
                                           {3, -std::numeric_limits<double>::infinity()}})
    EXPECT_EQ(found(x, 4, {picked}, serial()), std::vector<double>{wanted});
}

TEST(LogProbabilities, WithoutALargestFiniteNumberThereIsNone) {
  for (const std::vector<float>& x :
       {std::vector<float>{0, nan}, {nan, 0}, {infinity, 0}, {-infinity, -infinity}, {nan, infinity}})
    EXPECT_TRUE(std::isnan(found(x, 2, {0}, serial())[0])) << x[0] << ", " << x[1];
}

}  // namespace
}  // namespace bie::kernels::test
