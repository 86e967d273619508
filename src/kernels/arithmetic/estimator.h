// The straight-through estimators of docs/spec/binary-linear.md#backward and
// docs/spec/nbit-linear.md#backward-at-8-bits. Comparisons are factors and no conditions, because GCC makes no vectors
// of arithmetic behind a condition.
#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/arithmetic/codes.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

/// 1 for lo <= v <= hi, else 0.
BIE_HOST_DEVICE float inside_range(float v, float lo, float hi) {
  return static_cast<float>(v >= lo) * static_cast<float>(v <= hi);
}

/// 0 for 0 and NaN.
BIE_HOST_DEVICE float sign(float v) { return static_cast<float>(v > 0) - static_cast<float>(v < 0); }

/// Divisor of a clip: a scale of 0 is replaced by the smallest normal float32.
BIE_HOST_DEVICE float clip_divisor(float scale) { return scale == 0 ? FLT_MIN : scale; }

/// The largest |xs| that is inside. |xs / scale| <= 1 in float32 where |xs| <= |scale|: a quotient of the next float is
/// rounded to more than 1. Infinity divided by itself is not inside.
BIE_HOST_DEVICE float sign_bound(float scale) { return fminf(fabsf(clip_divisor(scale)), FLT_MAX); }

struct Estimate {
  float grad, term, code;  ///< term: what the gradient of the scale adds up
};

/// Straight-through estimator of an activation that is quantised to its sign; the gradient passes where |xs| <= bound.
BIE_HOST_DEVICE Estimate sign_estimate(float xs, float up, float bound) {
  const float grad = up * inside_range(xs, -bound, bound), code = sign(xs);
  return {grad, grad * code, code};
}

/// A learned-step quantiser with codes from lo to hi.
struct QuantizerEstimator {
  float lo, hi;
  float divisor;  ///< of the activation: clip_divisor of the scale
  float gain;     ///< of the gradient
  bool exact;     ///< terms take the gradient as it comes, not clipped
};

/// v: xs / e.divisor.
BIE_HOST_DEVICE Estimate quotient_estimate(float v, float up, const QuantizerEstimator& e) {
  const float within = clamped(v, e.lo, e.hi), inside = static_cast<float>(v == within), code = rounded(within);
  const float grad = up * e.gain * inside;
  // Outside, the clamped value is the bound itself.
  return {grad, (code - v * inside) * (e.exact ? up : grad), code};
}

BIE_HOST_DEVICE Estimate quantizer_estimate(float xs, float up, const QuantizerEstimator& e) {
  return quotient_estimate(xs / e.divisor, up, e);
}

}  // namespace bie::kernels
