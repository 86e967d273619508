// The arithmetic of src/kernels/cuda/quotient.cuh and quantiser.cuh, on the host: a product with the inverse and one
// correction are the rounded quotient, and round to the integer that it rounds to.
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

// For integers of 24 bits, x / by lies beside the midpoint of two floats where by * Q + k = x * 2^bits with an odd Q of
// 25 bits and a small k. If `by` is odd, every k has one such Q. With 25 bits the quotients are below 1, with 24 bits
// above; other quotients differ by a power of two. k from 9 on is too far from the midpoint to matter.
TEST(Quotient, OneCorrectionIsTheRoundedQuotientBesideEveryMiddle) {
  constexpr std::uint32_t first = 1U << 23, last = 1U << 24, stride = 14;
  std::int64_t tried = 0, wrong = 0, uncorrected = 0;
  for (std::uint32_t by = first + 1; by < last; by += stride) {
    std::uint32_t inverse_of_odd = by;  // modulo 2^32: each step doubles the right bits
    for (int step = 0; step < 5; ++step) inverse_of_odd *= 2 - by * inverse_of_odd;
    const float divisor = static_cast<float>(by), inverse = 1.0f / divisor;
    for (const int bits : {24, 25})
      for (int k = -7; k <= 7; k += 2) {
        const std::uint32_t middle = (static_cast<std::uint32_t>(-k) * inverse_of_odd) & ((1U << bits) - 1);
        const std::uint32_t whole = bits == 25 ? middle : middle | 1U << 24;
        const std::uint64_t product = std::uint64_t{by} * whole + static_cast<std::uint64_t>(std::int64_t{k});
        ASSERT_EQ(product & ((1U << bits) - 1), 0U);
        const std::uint64_t x = product >> bits;
        if (whole < (1U << 24) || x < first || x >= last) continue;
        ++tried;
        const float number = static_cast<float>(x), quotient = number * inverse;
        const float nearer = std::fma(std::fma(-quotient, divisor, number), inverse, quotient);
        wrong += nearer != number / divisor;
        uncorrected += quotient != number / divisor;
      }
  }
  EXPECT_GT(tried, 1000000);
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(uncorrected, tried / 10);
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
