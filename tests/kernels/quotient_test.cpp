// The arithmetic of src/kernels/cuda/quantiser.cuh, on the host: a product with the inverse and one correction round to
// the integer that the rounded quotient rounds to.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "kernels/arithmetic/float_bits.h"

namespace bie::kernels::test {
namespace {

// A quotient can only round to another integer where it lies beside a half. Powers of two change nothing, so the steps
// from 1 to 2 are all of them. A prime stride tries a hundredth of them.
TEST(Quotient, OneCorrectionDecidesBesideEveryHalf) {
  constexpr std::uint32_t first = 0x3f800000, last = 0x40000000, stride = 97;
  std::int64_t wrong = 0, uncorrected = 0;
  for (int k = 0; k <= 128; ++k) {
    const float half = static_cast<float>(k) + 0.5f;
    for (std::uint32_t bits = first; bits < last; bits += stride) {
      const float step = float_from_bits(bits), inverse = 1.0f / step;
      for (int away = -3; away <= 3; ++away) {
        const float x = float_from_bits(bits_from_float(half * step) + static_cast<std::uint32_t>(away));
        const float quotient = x * inverse;
        const float nearer = std::fma(std::fma(-quotient, step, x), inverse, quotient);
        const float wanted = std::nearbyint(x / step);
        wrong += std::nearbyint(nearer) != wanted;
        uncorrected += std::nearbyint(quotient) != wanted;
      }
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(uncorrected, 0);  // else these were no hard cases
}

TEST(Quotient, TwoStepsInFloat64RoundToTheInverse) {
  std::int64_t wrong = 0, first = 0;
  for (std::uint32_t bits = 0x3f800000; bits < 0x40000000; ++bits) {
    const float value = float_from_bits(bits), wanted = 1.0f / value;
    for (int away = -2; away <= 2; ++away) {  // the approximation is off by one unit in its last place at most
      const float approximate = float_from_bits(bits_from_float(wanted) + static_cast<std::uint32_t>(away));
      const double by = value;
      double inverse = approximate;
      for (int step = 0; step < 2; ++step) inverse = std::fma(std::fma(-by, inverse, 1.0), inverse, inverse);
      wrong += static_cast<float>(inverse) != wanted;
      first += approximate != wanted;
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(first, 0);
}

}  // namespace
}  // namespace bie::kernels::test
