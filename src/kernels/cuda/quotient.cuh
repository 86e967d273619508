// Many numbers divided by one, with the results of true divisions and without a branch, so that the compiler mixes the
// work of neighbours.
#pragma once

namespace bie::kernels::cuda {

/// 1 / value rounded, of values from 2^-70 to 2^61, without the routine that a division calls for others: two steps of
/// Newton's in float64 from the instruction's approximation (tests/kernels/quotient_test.cpp).
__device__ inline float inverse_of(float value) {
  float approximate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(approximate) : "f"(value));
  const double by = value;
  double inverse = approximate;
#pragma unroll
  for (int step = 0; step < 2; ++step) inverse = __fma_rn(__fma_rn(-by, inverse, 1.0), inverse, inverse);
  return __double2float_rn(inverse);
}

/// x / by. With y = 1 / by rounded, q = x * y is off by one and a half units in its last place at most, and q + (x - q
/// * by) * y is the rounded quotient unless that lies within 2^-23 of a unit from the middle between two floats; such
/// quotients come out right too (tests/kernels/quotient_test.cpp tries a part of them; all of them were tried once).
class FloatDivisor {
 public:
  static __device__ bool takes(float by) { return by >= 0x1p-60f && by <= 0x1p60f; }
  explicit __device__ FloatDivisor(float by) : by_(by), inverse_(inverse_of(by)) {}

  /// Rounded where |x / by| is 0 or from 2^-40 to 2^20; off by two units in the last place at most elsewhere. Infinity
  /// and NaN stay.
  __device__ float operator()(float x) const {
    const float quotient = __fmul_rn(x, inverse_);
    const float nearer = __fmaf_rn(__fmaf_rn(-quotient, by_, x), inverse_, quotient);
    return fabsf(quotient) < 0x1p20f ? nearer : quotient;
  }

 private:
  float by_, inverse_;
};

}  // namespace bie::kernels::cuda
