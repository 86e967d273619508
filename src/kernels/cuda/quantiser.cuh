// Many numbers to codes: the integers of a true division without one.
#pragma once

#include "kernels/cuda/codes.cuh"
#include "kernels/cuda/quotient.cuh"

namespace bie::kernels::cuda {

/// clamp(rint(xs / step), lo, hi) of eight xs without dividing them. With y = 1 / step rounded, q = xs * y is off by
/// two units in its last place at most, and q + (xs - q * step) * y, whose remainder is found without rounding its
/// product, rounds to the integer that the rounded quotient rounds to (Markstein 1990, "Computation of elementary
/// functions on the IBM RISC System/6000 processor"; tests/kernels/quotient_test.cpp tries a
/// hundredth of the step sizes; all of them were tried once). NaN gives
/// lo.
class Quantiser {
 public:
  __device__ Quantiser(float step, const Range& range) : range_(range) {
    // A power of two that keeps remainders of the smallest and products of the largest steps in range.
    scale_ = step < 0x1p-60f ? 0x1p80f : step > 0x1p60f ? 0x1p-80f : 1.0f;
    step_ = __fmul_rn(step, scale_);
    inverse_ = inverse_of(step_);
    least_ = __fmul_rn(range.lo, step_);
    most_ = __fmul_rn(range.hi, step_);
  }

  __device__ void codes(const float (&xs)[8], int (&codes)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = code(xs[j]);
  }
  __device__ int code(float x) const { return static_cast<int>(added(x)) - bits_of_whole; }
  /// The same as bytes, the first one lowest.
  __device__ void bytes(const float (&xs)[8], unsigned (&words)[2]) const {
#pragma unroll
    for (int w = 0; w < 2; ++w) {
      const unsigned low = __byte_perm(added(xs[4 * w]), added(xs[4 * w + 1]), 0x0040);
      const unsigned high = __byte_perm(added(xs[4 * w + 2]), added(xs[4 * w + 3]), 0x0040);
      words[w] = __byte_perm(low, high, 0x5410);
    }
  }
  __device__ const Range& range() const { return range_; }

  static constexpr float whole = 0x1.8p23f;  ///< a sum with it keeps no fraction, and its low bits are the integer
  static constexpr int bits_of_whole = 0x4b400000;

 private:
  /// The bits of the code and `whole`.
  __device__ unsigned added(float given) const {
    const float x = fminf(fmaxf(__fmul_rn(given, scale_), least_), most_);
    const float quotient = __fmul_rn(x, inverse_);
    const float nearer = __fmaf_rn(__fmaf_rn(-quotient, step_, x), inverse_, quotient);
    return __float_as_uint(__fadd_rn(nearer, whole));
  }

  float step_, inverse_, scale_, least_, most_;
  Range range_;
};

}  // namespace bie::kernels::cuda
