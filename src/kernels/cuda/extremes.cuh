// The smallest and largest element of an array, and whether all are finite: what factors of integer codes come from.
#pragma once

#include <cmath>

namespace bie::kernels::cuda {

struct Extremes {
  float min, max;
  int all_finite;
  __device__ static Extremes none() { return {INFINITY, -INFINITY, 1}; }
  __device__ static Extremes of(float v) { return {v, v, isfinite(v) ? 1 : 0}; }
  __device__ void add(const Extremes& other) {
    min = fminf(min, other.min);
    max = fmaxf(max, other.max);
    all_finite &= other.all_finite;
  }
};

}  // namespace bie::kernels::cuda
