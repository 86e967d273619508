// exp and the logistic function in float32, one rounding an operation: the same bits on every machine.
// docs/spec/nets.md has the law.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

/// exp(z) of z <= 0, to within 1.1 units in the last place; 0 below -104, NaN of NaN. z = n * ln2 + r with an integer n
/// and |r| <= ln2 / 2, and exp(r) = 1 + (r + r^2 * q(r)), where q has the least largest relative error among those of
/// degree 4 whose coefficients are floats. n * ln2_high is exact.
BIE_HOST_DEVICE float exp_below_zero(float z) {
  constexpr float log2_e = 0x1.715476p0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  constexpr float integers = 0x1.8p23f;  // added to a small number it leaves the nearest integer
  constexpr std::uint32_t integers_bits = 0x4b400000;
  const float least = z < -104.0f ? -104.0f : z;
  const float sum = least * log2_e + integers, n = sum - integers;
  const float r = (least - n * ln2_high) - n * ln2_low;
  const float q =
      0x1.fffffcp-2f + r * (0x1.555492p-3f + r * (0x1.5558bp-5f + r * (0x1.123988p-7f + r * 0x1.6a4ce4p-10f)));
  const float p = 1.0f + (r + r * r * q);
  // 2^n in two factors, so that only the last product is rounded where the result is subnormal.
  const auto power = static_cast<std::int32_t>(bits_from_float(sum) - integers_bits), half = power >> 1;
  const auto two_to = [](std::int32_t exponent) {
    return float_from_bits((static_cast<std::uint32_t>(exponent) + 127u) << 23);
  };
  return p * two_to(half) * two_to(power - half);
}

/// 1 / (1 + exp(-x)): with e = exp(-|x|) it is e / (1 + e) below 0, else 1 / (1 + e).
BIE_HOST_DEVICE float sigmoid_of(float x) {
  const float e = exp_below_zero(-float_from_bits(bits_from_float(x) & 0x7fffffffu));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

}  // namespace bie::kernels
