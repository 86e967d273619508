// The arithmetic of the straight-through estimators, as the CPU's passes have it (src/ops/elementwise.h).
#pragma once

#include <cfloat>

namespace bie::kernels::cuda {

/// max(v, floor) that keeps NaN.
__device__ inline float lifted(float v, float floor) { return v < floor ? floor : v; }

/// clamp(rint(v), lo, hi): no -0 comes out, NaN stays.
__device__ inline float round_clamped(float v, float lo, float hi) {
  constexpr float shift = 0x1.8p23f;
  v = v < lo ? lo : v > hi ? hi : v;
  return (v + shift) - shift;
}

__device__ inline float inside_range(float v, float lo, float hi) { return v >= lo && v <= hi ? 1.0f : 0.0f; }

__device__ inline float clip_divisor(float scale) { return scale == 0 ? FLT_MIN : scale; }

__device__ inline float sign(float v) { return v > 0 ? 1.0f : v < 0 ? -1.0f : 0.0f; }

}  // namespace bie::kernels::cuda
