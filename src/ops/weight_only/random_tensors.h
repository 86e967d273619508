// The random numbers of kernels/arithmetic/random.h as tensors, by torch's operators: the same bits on every device.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/floor.h>

#include <cstdint>

#include "ops/random.h"

namespace bie::ops {

inline at::Tensor shifted_right(const at::Tensor& t, std::int64_t bits) {
  return t.bitwise_right_shift(bits).bitwise_and((std::int64_t{1} << (64 - bits)) - 1);
}

/// random_bits(start, element) of int64 elements.
inline at::Tensor random_bits_of(std::uint64_t start, const at::Tensor& elements) {
  const auto number = [](std::uint64_t value) { return static_cast<std::int64_t>(value); };
  at::Tensor x = elements * number(kernels::golden) + number(start);
  x = x.bitwise_xor(shifted_right(x, 30)) * number(0xbf58476d1ce4e5b9u);
  x = x.bitwise_xor(shifted_right(x, 27)) * number(0x94d049bb133111ebu);
  return x.bitwise_xor(shifted_right(x, 31));
}

/// clamp(v, lo, hi) to the whole number below it or, at random, the one above; int32.
inline at::Tensor rounded_at_random_of(const at::Tensor& v, double lo, const at::Tensor& hi, const at::Tensor& bits) {
  const at::Tensor clamped = v.clamp_min(lo).minimum(hi), below = clamped.floor();
  const at::Tensor uniform = shifted_right(bits, 40).to(at::kFloat) * 0x1p-24;
  return (below + uniform.ge(1 - (clamped - below))).to(at::kInt);
}

/// Finite float32 values as bfloat16, rounded at random with the low 16 of the bits.
inline at::Tensor bf16_at_random_of(const at::Tensor& values, const at::Tensor& bits) {
  const at::Tensor low = bits.bitwise_and(0xffff).to(at::kInt);
  return (values.contiguous().view(at::kInt) + low).bitwise_and(-65536).view(at::kFloat).to(at::kBFloat16);
}

}  // namespace bie::ops
