// Logarithms of a softmax, the best of them and divergences: against long double, with numbers far apart, and where
// there are none.
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
  std::vector<LogSum> sums(picked.size());
  log_sums(x.data(), static_cast<std::int64_t>(picked.size()), n, sums.data(), parallel);
  std::vector<double> y;
  for (std::size_t i = 0; i < picked.size(); ++i)
    y.push_back(sums[i].of(x[i * static_cast<std::size_t>(n) + static_cast<std::size_t>(picked[i])]));
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

struct Best {
  std::vector<std::int32_t> ids;
  std::vector<double> logs, rest;
};

Best best_of(const std::vector<float>& x, std::int64_t rows, std::int64_t k, const Parallel& parallel) {
  Best best{std::vector<std::int32_t>(static_cast<std::size_t>(rows * k)), {}, {}};
  best.logs.resize(best.ids.size());
  best.rest.resize(static_cast<std::size_t>(rows));
  best_log_probabilities(x.data(), rows, static_cast<std::int64_t>(x.size()) / rows, k, best.ids.data(),
                         best.logs.data(), best.rest.data(), parallel);
  return best;
}

std::vector<float> random_logits(std::int64_t count, ReplayableRng& rng) {
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& v : x) v = static_cast<float>(rng.between(-80, 80)) * 0.125f;  // many are equal
  return x;
}

TEST(BestLogProbabilities, AreTheLargestAndTheRestAddsUpToOne) {
  ReplayableRng rng;
  for (const auto& [n, k] : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 1}, {7, 7}, {300, 20}}) {
    constexpr std::int64_t rows = 4;
    const std::vector<float> x = random_logits(rows * n, rng);
    const Best best = best_of(x, rows, k, serial());
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const row = x.data() + i * n;
      const std::int32_t* const ids = best.ids.data() + i * k;
      double sum = std::exp(best.rest[static_cast<std::size_t>(i)]);
      std::vector<bool> is_picked(static_cast<std::size_t>(n));
      for (std::int64_t j = 0; j < k; ++j) {
        if (j > 0) {
          EXPECT_TRUE(row[ids[j - 1]] > row[ids[j]] || (row[ids[j - 1]] == row[ids[j]] && ids[j - 1] < ids[j]));
        }
        is_picked[static_cast<std::size_t>(ids[j])] = true;
        sum += std::exp(best.logs[static_cast<std::size_t>(i * k + j)]);
        EXPECT_EQ(best.logs[static_cast<std::size_t>(i * k + j)], log_sum_of(row, n).of(row[ids[j]]));
      }
      EXPECT_NEAR(sum, 1, 1e-12) << n << ", " << k;
      EXPECT_EQ(std::isinf(best.rest[static_cast<std::size_t>(i)]), n == k);
      for (std::int64_t t = 0; t < n; ++t) {
        if (!is_picked[static_cast<std::size_t>(t)]) {
          EXPECT_LE(row[t], row[ids[k - 1]]);
        }
      }
    }
    ThreadPool pool(3);
    EXPECT_EQ(best_of(x, rows, k, pool.parallel()).ids, best.ids);
    EXPECT_EQ(best_of(x, rows, k, pool.parallel()).rest, best.rest);
  }
}

TEST(Divergences, AreThoseOfLongDouble) {
  ReplayableRng rng;
  for (const auto& sizes : std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {7, 1}, {7, 7}, {300, 20}}) {
    const std::int64_t n = sizes.first, k = sizes.second;
    constexpr std::int64_t rows = 4;
    const Best best = best_of(random_logits(rows * n, rng), rows, k, serial());
    const std::vector<float> x = random_logits(rows * n, rng);
    std::vector<double> y(rows);
    const auto compute = [&](const Parallel& parallel) {
      divergences(x.data(), rows, n, k, best.ids.data(), best.logs.data(), best.rest.data(), y.data(), parallel);
      return y;
    };
    const std::vector<double> found_ones = compute(serial());
    for (std::int64_t i = 0; i < rows; ++i) {
      const float* const row = x.data() + i * n;
      long double all = 0, others = 0, wanted = 0, left = 1;
      for (std::int64_t t = 0; t < n; ++t) all += std::exp(static_cast<long double>(row[t]));
      others = all;
      for (std::int64_t j = 0; j < k; ++j) {
        const long double p = std::exp(static_cast<long double>(best.logs[static_cast<std::size_t>(i * k + j)]));
        const long double q = std::exp(static_cast<long double>(row[best.ids[static_cast<std::size_t>(i * k + j)]]));
        wanted += p * std::log(p / (q / all));
        others -= q;
        left -= p;
      }
      if (k < n) wanted += left * std::log(left / (others / all));
      EXPECT_NEAR(found_ones[static_cast<std::size_t>(i)], static_cast<double>(wanted), 1e-9) << n << ", " << k;
    }
    ThreadPool pool(3);
    EXPECT_EQ(found_ones, compute(pool.parallel()));
  }
}

TEST(Divergences, WhatOnlyOneOfBothCannotBe) {
  const std::vector<float> x{0, -infinity, 0};
  const std::vector<std::int32_t> ids{1};
  std::vector<double> y(1);
  const std::vector<double> all{0.0}, none{-static_cast<double>(infinity)};
  divergences(x.data(), 1, 3, 1, ids.data(), all.data(), none.data(), y.data(), serial());
  EXPECT_EQ(y[0], static_cast<double>(infinity));  // the model cannot say what the reference does
  divergences(x.data(), 1, 3, 1, ids.data(), none.data(), all.data(), y.data(), serial());
  EXPECT_EQ(y[0], 0);  // both say anything else
}

}  // namespace
}  // namespace bie::kernels::test
