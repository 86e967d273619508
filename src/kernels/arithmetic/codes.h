// Numbers to integer codes: rounding, clamping, and the factors that codes by the largest element are made with.
#pragma once

#include <cmath>

#include "kernels/arithmetic/amax_factor.h"
#include "kernels/arithmetic/host_device.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define BIE_HAS_MINIMUM_OF_NAN
#endif

namespace bie::kernels {

/// max(v, floor) that keeps NaN.
BIE_HOST_DEVICE float lifted(float v, float floor) { return v < floor ? floor : v; }

/// clamp(v, lo, hi) that keeps NaN and, of bounds that are not 0, -0.
BIE_HOST_DEVICE float clamped(float v, float lo, float hi) {
#ifdef BIE_HAS_MINIMUM_OF_NAN
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(v), "f"(lo));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(v), "f"(hi));
  return v;
#else
  v = v < lo ? lo : v;
  return v > hi ? hi : v;
#endif
}

/// rint(v) of |v| < 2^22: no -0 comes out, NaN stays. Adding 1.5 * 2^23 leaves no fraction bits, so the sum is rounded
/// to even; unlike rint() it becomes vector instructions of any CPU.
BIE_HOST_DEVICE float rounded(float v) {
  constexpr float shift = 0x1.8p23f;
  return (v + shift) - shift;
}

/// clamp(rint(v), lo, hi) for integer bounds below 2^22: no -0 comes out, NaN stays.
BIE_HOST_DEVICE float round_clamped(float v, float lo, float hi) { return rounded(clamped(v, lo, hi)); }

/// clamp(rint(xs / step), lo, hi) by true division; NaN gives lo.
BIE_HOST_DEVICE int quantize(float xs, float step, float lo, float hi) {
  return static_cast<int>(fminf(fmaxf(rintf(xs / step), lo), hi));
}

// Codes by multiplication with a factor: bound / amax, or 0 where every code is 0.

BIE_HOST_DEVICE float scaled(float v, const AmaxFactor& factor) { return v * factor.lift * factor.by; }

/// rint(v * bound / amax) as a float, which may be -0.
BIE_HOST_DEVICE float amax_code(float v, const AmaxFactor& factor, float lo, float hi) {
  return factor.by == 0 ? 0.0f : clamped(rintf(scaled(v, factor)), lo, hi);
}

/// The scale that amax_quantize returns.
BIE_HOST_DEVICE float amax_scale(float amax, const AmaxFactor& factor) { return amax <= 0x1p-24f ? 1.0f : factor.by; }

/// The factor of an integer gradient between these extremes; 0, the step being left out, where not all is finite.
BIE_HOST_DEVICE AmaxFactor grad_factor(float min, float max, bool all_finite) {
  const float amax = max > 0 ? max : fabsf(min);
  return amax_factor(127, all_finite ? amax : 0.0f);
}

/// An element of an integer gradient, whose factor is not 0. The bounds are arguments, because GCC makes branches of a
/// clamp between constants.
BIE_HOST_DEVICE int grad_code(float v, const AmaxFactor& factor, float lo, float hi) {
  return static_cast<int>(round_clamped(scaled(v, factor), lo, hi));
}

/// The factor of a binary weight whose largest element is `max`. The largest weight is the largest centred one: a
/// rounded subtraction keeps the order. An all-equal weight may centre to tiny negatives only.
BIE_HOST_DEVICE AmaxFactor centred_factor(float max, float centre) {
  return amax_factor(127, fmaxf(0.0f, max - centre));
}

/// The training form of an element of a binary weight: never 0.
BIE_HOST_DEVICE int centred_code(float w, float centre, const AmaxFactor& factor) {
  const float c = w - centre, code = factor.by == 0 ? 0.0f : round_clamped(scaled(c, factor), -127, 127);
  const int whole = code == code ? static_cast<int>(code) : 0;
  return whole != 0 ? whole : c < 0 ? -1 : 1;
}

}  // namespace bie::kernels
