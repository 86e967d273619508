// Elements of the kernels' dtypes as float32 and back, rounded as arithmetic/float_bits.h rounds them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "bie/kernels/dtype.h"

namespace bie::kernels::cuda {

template <class T>
__device__ inline float widen(T value) {
  return static_cast<float>(value);
}
template <>
__device__ inline float widen(__half value) {
  return __half2float(value);
}
template <>
__device__ inline float widen(__nv_bfloat16 value) {
  return __bfloat162float(value);
}

template <class T>
__device__ inline T narrow(float value);
template <>
__device__ inline float narrow(float value) {
  return value;
}
template <>
__device__ inline __half narrow(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 narrow(float value) {
  return __float2bfloat16_rn(value);
}
/// value must be a whole number between -128 and 127.
template <>
__device__ inline std::int8_t narrow(float value) {
  return static_cast<std::int8_t>(value);
}

template <class T>
struct alignas(2 * sizeof(T)) Two {
  T at[2];
};
/// Converts two numbers, in one instruction where there is one for pairs.
template <class T>
__device__ inline Two<T> narrow_two(const Two<float>& two) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(two.at[0], two.at[1]);
    return {both.x, both.y};
  } else if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(two.at[0], two.at[1]);
    return {both.x, both.y};
  } else {
    return two;
  }
}

/// body(T{}) for the element type of a float dtype.
template <class Body>
auto with_float(Dtype dtype, const Body& body) {
  switch (dtype) {
    case Dtype::bf16: return body(__nv_bfloat16{});
    case Dtype::f16: return body(__half{});
    default: return body(float{});
  }
}

/// with_float, and std::int8_t for s8.
template <class Body>
auto with_value(Dtype dtype, const Body& body) {
  return dtype == Dtype::s8 ? body(std::int8_t{}) : with_float(dtype, body);
}

}  // namespace bie::kernels::cuda
