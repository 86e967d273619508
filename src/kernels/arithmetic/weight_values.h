// One element of a weight of codes: its value, and where a value lies among the codes.
#pragma once

#include <cmath>
#include <cstdint>

#include "bie/kernels/diode_mix.h"
#include "bie/kernels/weight_format.h"
#include "kernels/arithmetic/host_device.h"

namespace bie::kernels {

/// z is the group's zero; `middle` the code that is 0 where nothing else is.
BIE_HOST_DEVICE float weight_value(Offset offset, float code, float s, float z, float middle) {
  return offset == Offset::value ? code * s - z : s * (code - (offset == Offset::zero ? z : middle));
}

/// The code that w would have if codes were real numbers.
BIE_HOST_DEVICE float code_position(Offset offset, float w, float s, float z, float middle) {
  const float shifted = offset == Offset::value ? w + z : w, codes = s == 0 ? 0.0f : shifted / s;
  return offset == Offset::value ? codes : codes + (offset == Offset::zero ? z : middle);
}

/// Updates the moments of an element; returns the direction of its step.
BIE_HOST_DEVICE float adam_direction(const AdamNumbers& o, float g, float* l, float* s) {
  const float a = o.b1 * *l + o.d1 * g, b = o.b2 * *s + o.d2 * g * g;
  *l = a;
  *s = b;
  return a / (sqrtf(b) + o.eps);
}

/// w - rate * u, decayed.
BIE_HOST_DEVICE float stepped(const AdamNumbers& o, float rate, float w, float u) {
  const float moved = w - rate * u;
  return moved - o.decay * moved;
}

}  // namespace bie::kernels
