// Means: exact sums, sums of any size in float64, the same bits of every kernel on every number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "bie/kernels/quantize.h"
#include "elements.h"
#include "every_kernel.h"

namespace bie::kernels::test {
namespace {

constexpr Dtype types[] = {Dtype::f32, Dtype::bf16, Dtype::f16};

/// The mean of the magnitudes, which every kernel must agree on.
float mean_abs(const Elements& x) {
  const float found = mean_table().back().magnitudes(x.bytes.data(), x.dtype, x.size(), serial());
  for_every_kernel(mean_table(), [&](const MeanKernel& kernel) {
    for_every_pool([&](const Parallel& parallel) {
      EXPECT_EQ(kernel.magnitudes(x.bytes.data(), x.dtype, x.size(), parallel), found) << kernel.name;
    });
  });
  return found;
}

TEST(Mean, ExactSumsGiveTheExactMean) {
  ReplayableRng rng;
  for (const Dtype dtype : types)
    for (const std::int64_t count : {1, 2, 3, 7, 8, 9, 255, 4095, 4096, 4097, 5 * 4096, 40003}) {
      Elements x(dtype, count);
      double sum = 0, magnitudes = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        x.set(i, static_cast<float>(rng.between(-100, 100)) * 0.125f);
        sum += static_cast<double>(x.get(i));
        magnitudes += std::fabs(static_cast<double>(x.get(i)));
      }
      EXPECT_EQ(mean_abs(x), static_cast<float>(magnitudes / static_cast<double>(count))) << count;
      for_every_kernel(mean_table(), [&](const MeanKernel& kernel) {
        EXPECT_EQ(kernel.elements(x.bytes.data(), dtype, count, serial()),
                  static_cast<float>(sum / static_cast<double>(count)));
      });
    }
}

TEST(Mean, SumsOfAnySizeAreAccumulatedInFloat64) {
  ReplayableRng rng;
  const std::int64_t count = 300001;
  Elements x(Dtype::f32, count);
  long double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    x.set(i, std::ldexp(static_cast<float>(rng.between(-99999, 99999)), static_cast<int>(rng.between(-60, 20))));
    sum += std::fabs(static_cast<long double>(x.get(i)));
  }
  const float mean = static_cast<float>(sum / count), found = mean_abs(x);
  EXPECT_LE(std::nextafter(mean, 0.0f), found);  // float64 may turn a last bit of the float32 result, no more
  EXPECT_GE(std::nextafter(mean, HUGE_VALF), found);
}

TEST(Mean, FloatsThatFloat32CouldNotAddUp) {
  Elements x(Dtype::f32, 100000);
  for (std::int64_t i = 0; i < 100000; ++i) x.set(i, i == 0 ? 0x1p+27f : 1.0f);
  EXPECT_EQ(mean_abs(x), static_cast<float>((0x1p+27 + 99999) / 100000));
}

TEST(Mean, WhatIsNotFiniteShows) {
  for (const float odd : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    Elements x(Dtype::f32, 20000);
    for (std::int64_t i = 0; i < 20000; ++i) x.set(i, i == 13000 ? odd : 1.0f);
    for_every_kernel(mean_table(), [&](const MeanKernel& kernel) {
      EXPECT_FALSE(std::isfinite(kernel.magnitudes(x.bytes.data(), x.dtype, x.size(), serial())));
    });
  }
}

TEST(Mean, NothingHasTheMeanZero) {
  for_every_kernel(mean_table(), [&](const MeanKernel& kernel) {
    EXPECT_EQ(kernel.magnitudes(nullptr, Dtype::f32, 0, serial()), 0.0f);
  });
}

}  // namespace
}  // namespace bie::kernels::test
