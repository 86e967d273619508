// 16-bit floats to codes by one product each, where that gives the integers of the division.
#pragma once

#include "kernels/cuda/quantiser.cuh"

namespace bie::kernels::cuda {

/// Codes of f16 or bf16 as rint(x * y), y = 1 / step rounded, product and sum with 1.5 * 2^23 rounded once. That and
/// the code of the quotient rise with x, so they are the same for all x if they are for the neighbours of every x where
/// the code changes: a block tries these once, and x is clamped to the last one that has the largest code and the first
/// one that has the least. Steps where it does not hold (few: those with a quotient within 2^-17 of the middle between
/// two codes, very large and very small ones) want a Quantiser.
template <class T>
class HalfQuantiser {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  static constexpr int most_finite = std::is_same_v<T, __half> ? 0x7bff : 0x7f7f;

 public:
  /// Called by all threads of a block. settled() tells whether the condition holds.
  __device__ HalfQuantiser(float step, const Range& range) {
    __shared__ int bounds[2];
    const int lo = static_cast<int>(range.lo), hi = static_cast<int>(range.hi);
    const bool tame = step > 0x1p-60f && step < 0x1p60f;
    const Quantiser exact(tame ? step : 1, {range.lo - 2, range.hi + 2});
    inverse_ = inverse_of(tame ? step : 1);
    if (threadIdx.x < 2) bounds[threadIdx.x] = threadIdx.x == 0 ? -most_finite : most_finite;
    __syncthreads();
    bool holds = tame;
    for (int k = lo - 1 + static_cast<int>(threadIdx.x); k <= hi; k += blockDim.x) {
      // Where codes go from k to k + 1: two neighbours below and two above.
      const float middle = (static_cast<float>(k) + 0.5f) * step;
      if (!(fabsf(middle) < float_of(most_finite))) continue;  // no x is there
      const int first = max(order_of(middle) - 2, -most_finite), last = min(first + 4, most_finite);
      int below = first;  // the last one whose code is at most k
      for (int at = first; at <= last; ++at) {
        const float x = float_of(at);
        const int code = exact.code(x);
        holds = holds && clamped(static_cast<int>(added(x)) - bits_of_whole, lo - 2, hi + 2) == code;
        if (code <= k) below = at;
      }
      const bool crossed = exact.code(float_of(first)) <= k && exact.code(float_of(last)) > k;
      holds = holds && (crossed || first == -most_finite || last == most_finite);
      if (k == hi) bounds[1] = below, holds = holds && exact.code(float_of(below)) == hi;
      if (k == lo - 1) bounds[0] = below + 1, holds = holds && exact.code(float_of(below + 1)) == lo;
    }
    settled_ = __syncthreads_and(holds) != 0;
    least_ = pair_of(bounds[0]);
    most_ = pair_of(bounds[1]);
  }
  __device__ bool settled() const { return settled_; }

  /// Codes of a pair in the two low bytes.
  __device__ unsigned two(unsigned pair) const {
    const Pair x = __hmin2(__hmax2(reinterpret_cast<const Pair&>(pair), least_), most_);
    return __byte_perm(added(widen(x.x)), added(widen(x.y)), 0x0040);
  }
  /// Codes of two pairs, the first one lowest.
  __device__ unsigned bytes(unsigned front, unsigned back) const { return __byte_perm(two(front), two(back), 0x5410); }

 private:
  static constexpr float whole = Quantiser::whole;
  static constexpr int bits_of_whole = Quantiser::bits_of_whole;

  __device__ unsigned added(float x) const { return __float_as_uint(__fmaf_rn(x, inverse_, whole)); }

  // Finite numbers in their order: 0, the positive ones up to most_finite and the negative ones down to its negative.
  static __device__ T value_of(int order) {
    const unsigned bits = order < 0 ? 0x8000u - order : order;
    if constexpr (std::is_same_v<T, __half>) {
      return __ushort_as_half(static_cast<unsigned short>(bits));
    } else {
      return __ushort_as_bfloat16(static_cast<unsigned short>(bits));
    }
  }
  static __device__ float float_of(int order) { return widen(value_of(order)); }
  static __device__ int order_of(float value) {
    const T rounded = narrow<T>(value);
    const int bits = reinterpret_cast<const unsigned short&>(rounded);
    return bits < 0x8000 ? bits : 0x8000 - bits;
  }
  static __device__ Pair pair_of(int order) { return {value_of(order), value_of(order)}; }
  static __device__ int clamped(int value, int lo, int hi) { return min(max(value, lo), hi); }

  float inverse_;
  Pair least_, most_;
  bool settled_;
};

/// Stands in for a HalfQuantiser where none is used.
struct NoQuantiser {
  __device__ NoQuantiser(float, const Range&) {}
  __device__ bool settled() const { return false; }
};

}  // namespace bie::kernels::cuda
