// The logistic function: every kernel against the reference to the bit, and the reference against double.
#include "bie/kernels/sigmoid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "elements.h"
#include "every_kernel.h"
#include "kernels/arithmetic/float_bits.h"
#include "replayable_rng.h"

namespace bie::kernels::test {
namespace {

/// Numbers of every exponent and sign, then some around 0, the ends and beyond them.
std::vector<float> numbers() {
  std::vector<float> x;
  for (std::uint32_t high = 0; high < 1u << 16; ++high) x.push_back(float_from_bits(high << 16 | 0x1234u));
  for (int i = -120000; i <= 120000; ++i) x.push_back(static_cast<float>(i) / 1000 + 1e-4f);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float v : {0.0f, -0.0f, 104.0f, -104.0f, -103.9999f, 1e30f, -1e30f, infinity, -infinity, -87.4f, -88.8f})
    x.push_back(v);
  return x;
}

bool alike(float a, float b) { return std::isnan(a) ? std::isnan(b) : bits_from_float(a) == bits_from_float(b); }

TEST(Sigmoid, EveryKernelGivesTheBitsOfTheReference) {
  const std::vector<float> x = numbers();
  const auto all = static_cast<std::int64_t>(x.size());
  const SigmoidKernel& reference = sigmoid_table().back();
  std::vector<float> wanted(x.size()), gated(x.size());
  reference.sigmoid(all, x.data(), wanted.data(), serial());
  reference.silu(all, x.data(), gated.data(), serial());
  for_every_pool([&](const Parallel& parallel) {
    for_every_kernel(sigmoid_table(), [&](const SigmoidKernel& kernel) {
      std::vector<float> y(x.size() + 1, 77.0f), z = y;
      ASSERT_EQ(kernel.sigmoid(all, x.data(), y.data(), parallel), Status::ok);
      ASSERT_EQ(kernel.silu(all, x.data(), z.data(), parallel), Status::ok);
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(alike(y[i], wanted[i])) << x[i] << ": " << y[i] << ", " << wanted[i];
        ASSERT_TRUE(alike(z[i], gated[i])) << x[i] << ": " << z[i] << ", " << gated[i];
      }
      ASSERT_EQ(y.back(), 77.0f);
      ASSERT_EQ(z.back(), 77.0f);
    });
  });
}

TEST(Sigmoid, EveryCountInPlace) {
  const std::vector<float> x = numbers();
  for_every_kernel(sigmoid_table(), [&](const SigmoidKernel& kernel) {
    for (const std::int64_t count : {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 65}) {
      std::vector<float> y(x.begin() + 70000, x.begin() + 70066), wanted(66);
      sigmoid_table().back().silu(count, y.data(), wanted.data(), serial());
      std::copy(y.begin() + count, y.end(), wanted.begin() + count);
      ASSERT_EQ(kernel.silu(count, y.data(), y.data(), serial()), Status::ok);
      ASSERT_EQ(y, wanted) << count;
    }
    EXPECT_EQ(kernel.sigmoid(-1, nullptr, nullptr, serial()), Status::bad_shape);
    EXPECT_EQ(kernel.silu(-1, nullptr, nullptr, serial()), Status::bad_shape);
  });
}

TEST(Sigmoid, WithinUnitsInTheLastPlace) {
  const std::vector<float> x = numbers();
  std::vector<float> y(x.size());
  sigmoid_table().back().sigmoid(static_cast<std::int64_t>(x.size()), x.data(), y.data(), serial());
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]));
      continue;
    }
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x[i])));
    const double unit = std::max(std::ldexp(1.0, std::ilogb(std::max(exact, 1e-300)) - 23), 0x1p-149);
    most = std::max(most, std::fabs(static_cast<double>(y[i]) - exact) / unit);
  }
  EXPECT_LT(most, 2.5);
  EXPECT_EQ(y[x.size() - 11], 0.5f);
  RecordProperty("units", std::to_string(most));
}

}  // namespace
}  // namespace bie::kernels::test
