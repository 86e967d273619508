// The scalar conversions behind the reference kernels, against the formats' definitions and the compiler's own type.
#include "kernels/arithmetic/float_bits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "formulas.h"
#include "replayable_rng.h"

// The compiler's own type of 16 bits, where it has one.
#if defined(__ARM_FP16_FORMAT_IEEE)
#define BIE_HALF __fp16
#elif defined(__FLT16_MAX__)
#define BIE_HALF _Float16
#endif

namespace bie::kernels::test {
namespace {

constexpr std::uint32_t nan_above = 0x7f800000;

/// Floats where rounding is decided: both sides of, and exactly on, the middle between two neighbours of the format.
std::vector<float> decisive_floats(Format16 format) {
  std::vector<float> values;
  for (int code = 0; code < format.infinity(); ++code) {
    const double here = widened(static_cast<std::uint16_t>(code), format);
    const double spacing = std::ldexp(1.0, std::max(0, (code >> format.fraction_bits) - 1) + format.lowest());
    const float middle = static_cast<float>(here + spacing / 2);  // exact in float32 for both formats
    for (const float v : {static_cast<float>(here), std::nextafter(middle, 0.0f), middle,
                          std::nextafter(middle, std::numeric_limits<float>::infinity())})
      if (std::isfinite(v)) values.insert(values.end(), {v, -v});
  }
  return values;
}

TEST(FloatBits, EveryHalfWidensToItsDefinition) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const std::uint16_t half = static_cast<std::uint16_t>(code);
    const double f16 = widened(half, f16_format), bf16 = widened(half, bf16_format);
    if (std::isnan(f16))
      EXPECT_TRUE(std::isnan(float_from_f16(half))) << code;
    else
      EXPECT_EQ(bits_from_float(float_from_f16(half)), bits_from_float(static_cast<float>(f16))) << code;
    if (std::isnan(bf16))
      EXPECT_TRUE(std::isnan(float_from_bf16(half))) << code;
    else
      EXPECT_EQ(bits_from_float(float_from_bf16(half)), bits_from_float(static_cast<float>(bf16))) << code;
  }
}

TEST(FloatBits, EveryHalfComesBack) {
  for (std::uint32_t code = 0; code < 65536; ++code) {
    const std::uint16_t half = static_cast<std::uint16_t>(code);
    const bool f16_nan = (code & 0x7fff) > 0x7c00, bf16_nan = (code & 0x7fff) > 0x7f80;
    EXPECT_EQ(f16_from_float(float_from_f16(half)), f16_nan ? (code & 0x8000) | 0x7e00 : code);
    EXPECT_EQ(bf16_from_float(float_from_bf16(half)), bf16_nan ? 0x7fc0 : code);
  }
}

TEST(FloatBits, TiesSubnormalsAndOverflowRoundToEven) {
  for (const float v : decisive_floats(f16_format)) ASSERT_EQ(f16_from_float(v), narrowed(v, f16_format)) << v;
  for (const float v : decisive_floats(bf16_format)) ASSERT_EQ(bf16_from_float(v), narrowed(v, bf16_format)) << v;
}

TEST(FloatBits, RandomFloatsRoundToTheNearest) {
  ReplayableRng rng;
  for (int i = 0; i < 1000000; ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(rng.between(0, 0xffffffff));
    if (i % 2 == 0) bits = (bits & 0x8fffffffu) | 0x30000000u;  // half of them where f16 has its numbers
    const float v = float_from_bits(bits);
    if ((bits & 0x7fffffff) > nan_above) {
      ASSERT_EQ(f16_from_float(v), (bits >> 16 & 0x8000) | 0x7e00);
      ASSERT_EQ(bf16_from_float(v), 0x7fc0);
      continue;
    }
    ASSERT_EQ(f16_from_float(v), narrowed(v, f16_format)) << v;
    ASSERT_EQ(bf16_from_float(v), narrowed(v, bf16_format)) << v;
#ifdef BIE_HALF
    const BIE_HALF theirs = static_cast<BIE_HALF>(v);
    std::uint16_t theirs_bits;
    std::memcpy(&theirs_bits, &theirs, 2);
    ASSERT_EQ(f16_from_float(v), theirs_bits) << v;
#endif
  }
}

}  // namespace
}  // namespace bie::kernels::test
