// DiodeMix on one element (docs/spec/optimizer.md).
#pragma once

#include <cmath>
#include <cstdint>

#include "bie/kernels/diode_mix.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

/// Adam: updates a weight and its moments.
BIE_HOST_DEVICE void adam(const AdamNumbers& o, float rate, float g, float* w, float* l, float* s) {
  const float a = o.b1 * *l + o.d1 * g;
  const float b = o.b2 * *s + o.d2 * g * g;
  const float p = *w - rate * a / (sqrtf(b) + o.eps);
  *l = a;
  *s = b;
  *w = p - o.decay * p;
}

/// clamp(v, lo, hi) goes to the code below it or, with the probability of its distance to that, to the one above; u is
/// uniform in [0, 1).
BIE_HOST_DEVICE std::int32_t rounded_at_random(float v, float lo, float hi, float u) {
  const float above = v > lo ? v : lo, clamped = above < hi ? above : hi;
  const std::int32_t cut = static_cast<std::int32_t>(clamped);  // towards 0
  const std::int32_t below = cut - (static_cast<float>(cut) > clamped ? 1 : 0);
  return below + (u >= 1 - (clamped - static_cast<float>(below)) ? 1 : 0);
}

/// l = lerp(l, g, d1), s = lerp(s, lr * sgn(l), d2).
BIE_HOST_DEVICE void sign_vote(const SignNumbers& o, float g, float* l, float* s) {
  const float a = *l + o.d1 * (g - *l);
  const float vote = (a > 0 ? o.lr : 0.0f) - (a < 0 ? o.lr : 0.0f);
  *l = a;
  *s += o.d2 * (vote - *s);
}

/// An int8 weight with the sign of -sgn(s), `negative` being -1 where s > 0 and else 0; an s of 0 counts as +1.
BIE_HOST_DEVICE std::int32_t with_sign(std::int32_t w, std::int32_t negative) {
  const std::int32_t magnitude = w < 0 ? -w : w, moved = (magnitude ^ negative) - negative;
  return moved > 127 ? 127 : moved;
}

/// A moment as bfloat16, rounded at random. bfloat16 is a float32 without its low 16 bits: add a random number below
/// them and cut.
BIE_HOST_DEVICE std::uint16_t bf16_at_random(float value, std::uint32_t random) {
  const std::uint32_t bits = bits_from_float(value), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fc0;
  return static_cast<std::uint16_t>((magnitude == 0x7f800000u ? bits : bits + (random & 0xffffu)) >> 16);
}

/// Initial exp_avg_s of a sign; u is uniform in [0, 1).
BIE_HOST_DEVICE float first_moment(std::int32_t w, float u) { return (w < 0 ? 1e-3f : w > 0 ? -1e-3f : 0.0f) * u; }

/// The scale that codes of this mean would start with, or the one they have where that is 0.
BIE_HOST_DEVICE float renewed(std::int64_t magnitudes, std::int64_t count, float scale, double mean_to_step) {
  const double mean = static_cast<double>(magnitudes) / static_cast<double>(count) * static_cast<double>(scale);
  const float next = static_cast<float>(mean_to_step * mean);
  return next > 0 ? next : scale;
}

}  // namespace bie::kernels
