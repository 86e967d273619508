// One element of a step of codes whose place between two codes is kept (bie/kernels/code_step.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "bie/kernels/code_step.h"
#include "kernels/arithmetic/diode_mix.h"
#include "kernels/arithmetic/float_bits.h"
#include "kernels/arithmetic/host_device.h"
#include "kernels/arithmetic/random.h"

namespace bie::kernels {

/// Moments whose largest magnitude is below this are 0: its inverse would not be finite.
static constexpr float least_moment = 0x1p-100f;

/// (code / top)^4 with the sign of the code.
BIE_HOST_DEVICE float moment_share(float code, float top) {
  const float t = code / top, square = t * t;
  return code < 0 ? -(square * square) : square * square;
}

/// The magnitude of the code of an |x| <= largest: of the two codes around it the upper one with the probability that
/// makes the mean x; u is uniform in [0, 1).
BIE_HOST_DEVICE float moment_code(float magnitude, float largest, float top, float u) {
  const float share = largest < least_moment ? 0.0f : magnitude / largest;
  const float at = sqrtf(sqrtf(share)) * top, cut = static_cast<float>(static_cast<std::int32_t>(at));
  const float below = cut < top - 1 ? cut : top - 1;
  const float a = moment_share(below, top), b = moment_share(below + 1, top);
  return below + (u * (b - a) < share - a ? 1.0f : 0.0f);
}

/// A gradient whose square is finite, else 0.
BIE_HOST_DEVICE float finite_or_zero(float g) {
  const float square = g * g;
  return square - square == 0 ? g : 0.0f;
}

/// The code of zero: c of W = s (q - c).
BIE_HOST_DEVICE float code_of_zero(Offset offset, float s, float z, float middle) {
  if (offset == Offset::value) return s == 0 ? 0.0f : z / s;
  return offset == Offset::zero ? z : middle;
}

/// A place after a step; move is rate * u / s, u a number in [0, 1).
BIE_HOST_DEVICE std::int32_t moved_place(std::int32_t place, float move, float decay, float zero, float unit, float low,
                                         float high, float u) {
  const float from = static_cast<float>(place), to = from - unit * move - decay * (from - unit * zero);
  return rounded_at_random(to - to == 0 ? to : from, low, high, u);
}

/// A scale after a step in direction u.
BIE_HOST_DEVICE float moved_scale(float s, float rate, float u) {
  const float change = rate * u, most = change > 0.5f ? 0.5f : change < -0.5f ? -0.5f : change;
  const float moved = s - fabsf(s) * most;
  return moved - moved == 0 ? moved : s;
}

/// A float as float16, rounded at random where float16 has 11 bits of precision, else to the nearest.
BIE_HOST_DEVICE std::uint16_t f16_at_random(float value, std::uint32_t random) {
  const std::uint32_t bits = bits_from_float(value), magnitude = bits & 0x7fffffffu;
  const bool normal = magnitude >= 0x38800000u && magnitude < 0x477fe000u;
  return f16_from_float(normal ? float_from_bits((bits + (random & 0x1fffu)) & ~0x1fffu) : value);
}

/// Steps the scale `at`, and its zero with it.
BIE_HOST_DEVICE void step_scale(const CodeStep& o, std::int64_t at, float sum) {
  const float s = load_float(o.scales, o.scale_dtype, at), g = finite_or_zero(sum);
  const float l = o.adam.b1 * o.scale_l[at] + o.adam.d1 * g, m = o.adam.b2 * o.scale_m[at] + o.adam.d2 * g * g;
  o.scale_l[at] = l;
  o.scale_m[at] = m;
  const float moved = moved_scale(s, o.scale_rate, l / (sqrtf(m) + o.adam.eps));
  const auto random = static_cast<std::uint32_t>(random_bits(o.random, o.k * o.n + at));
  const std::uint16_t half = o.scale_dtype == Dtype::f16 ? f16_at_random(moved, random) : bf16_at_random(moved, random);
  float kept = moved;
  if (o.scale_dtype != Dtype::f32) kept = o.scale_dtype == Dtype::f16 ? float_from_f16(half) : float_from_bf16(half);
  if (kept == s || kept == 0 || kept - kept != 0) return;  // the last two near the ends of its dtype
  if (o.offset == Offset::value && s != 0) {
    const float z = load_float(o.zeros, o.scale_dtype, at) / s * kept;
    if (z - z != 0) return;
    store_scaled(1, z, o.zeros, o.scale_dtype, at);
  }
  store_scaled(1, kept, o.scales, o.scale_dtype, at);
}

}  // namespace bie::kernels
