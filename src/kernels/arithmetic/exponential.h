// e^x of one float32, the same bits everywhere: docs/spec/language-models.md#functions.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

/// All branches are computed and one is selected, so that loops over it vectorise.
BIE_HOST_DEVICE float exponential(float x) {
  constexpr float lowest = -87.33f, highest = 88.72f;
  constexpr float log2e = 0x1.715476p+0f, ln2_high = 0x1.62e43p-1f, ln2_low = -0x1.05c61p-29f;
  constexpr float whole = 0x1.8p23f;  // added and subtracted, it leaves a whole number, half to even
  float y = x < lowest ? lowest : x;
  y = y > highest ? highest : y;
  const float shifted = y * log2e + whole, n = shifted - whole;
  float r = __builtin_fmaf(n, -ln2_high, y);
  r = __builtin_fmaf(n, -ln2_low, r);
  float p = 0x1.a01a02p-13f;  // 1 / 7!, 1 / 6!, ...
  p = __builtin_fmaf(p, r, 0x1.6c16c2p-10f);
  p = __builtin_fmaf(p, r, 0x1.111112p-7f);
  p = __builtin_fmaf(p, r, 0x1.555556p-5f);
  p = __builtin_fmaf(p, r, 0x1.555556p-3f);
  p = __builtin_fmaf(p, r, 0.5f);
  p = __builtin_fmaf(p, r, 1.0f);
  p = __builtin_fmaf(p, r, 1.0f);
  // 2^n in two factors: n = 128 occurs, whose power is no float32.
  const auto power = static_cast<std::int32_t>(bits_from_float(shifted) - bits_from_float(whole));
  const std::int32_t half = power >> 1;
  p = p * float_from_bits(static_cast<std::uint32_t>(half + 127) << 23);
  p = p * float_from_bits(static_cast<std::uint32_t>(power - half + 127) << 23);
  p = x < lowest ? 0.0f : p;
  return x > highest ? std::numeric_limits<float>::infinity() : p;
}

}  // namespace bie::kernels
