// tanh of one float32, the same bits everywhere: docs/spec/language-models.md#functions.
#pragma once

#include <cstdint>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

/// (e^a - 1) / (e^a + 1) of a = 2 |y|, with the sign of y. e^a - 1 is computed without the 1, which small y would drown
/// in.
BIE_HOST_DEVICE float hyperbolic_tangent(float y) {
  constexpr float largest = 20.0f;  // whose tangent rounds to 1
  constexpr float log2e = 0x1.715476p+0f, ln2_high = 0x1.62e43p-1f, ln2_low = -0x1.05c61p-29f;
  constexpr float whole = 0x1.8p23f;  // added and subtracted, it leaves a whole number, half to even
  const std::uint32_t sign = bits_from_float(y) & 0x80000000u;
  float a = 2.0f * float_from_bits(bits_from_float(y) ^ sign);
  a = a > largest ? largest : a;
  const float shifted = a * log2e + whole, n = shifted - whole;
  float r = __builtin_fmaf(n, -ln2_high, a);
  r = __builtin_fmaf(n, -ln2_low, r);
  float p = 0x1.a01a02p-13f;  // 1 / 7!, 1 / 6!, ...
  p = __builtin_fmaf(p, r, 0x1.6c16c2p-10f);
  p = __builtin_fmaf(p, r, 0x1.111112p-7f);
  p = __builtin_fmaf(p, r, 0x1.555556p-5f);
  p = __builtin_fmaf(p, r, 0x1.555556p-3f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  const float power = float_from_bits((bits_from_float(shifted) - bits_from_float(whole) + 127u) << 23);  // 2^n
  const float less_one = __builtin_fmaf(power, p * r, power - 1.0f);
  const float t = less_one / (less_one + 2.0f);
  return float_from_bits(bits_from_float(t) | sign);
}

/// cap * tanh(x / cap): the soft cap of Gemma 2.
BIE_HOST_DEVICE float soft_capped(float x, float cap) { return cap * hyperbolic_tangent(x / cap); }

}  // namespace bie::kernels
