// Parameters of every kind for the optimizers' tests.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include "bie/optim/diode_mix.h"

namespace bie::optim::test {

inline at::Tensor numbers(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, at::Generator(at::detail::createCPUGenerator(seed)));
}

/// int8 weights of any magnitude and sign, never 0.
inline at::Tensor int8_weight(std::int64_t count, std::uint64_t seed) {
  const at::Tensor w = at::randint(-127, 128, {count}, at::Generator(at::detail::createCPUGenerator(seed)), at::kChar);
  return w.masked_fill_(w.eq(0), 1);
}

inline at::Tensor sign_of(const at::Tensor& w) { return w.lt(0).mul(-2).add(1); }

/// Codes in the range of their bits.
inline at::Tensor code_weight(std::int64_t count, int bits, std::uint64_t seed) {
  const std::int64_t half = 1 << (bits - 1);
  return at::randint(-half, half, {count}, at::Generator(at::detail::createCPUGenerator(seed)), at::kChar);
}

inline Param signs(const at::Tensor& w, const std::string& name = {}) { return {w, name, 1}; }
inline Param codes(const at::Tensor& q, int bits, float scale, const std::string& name = {}) {
  return {q, name, bits, at::full({}, scale)};
}

/// One step of the optimizer with these gradients.
inline void step(DiodeMix& optimizer, at::Tensor param, const at::Tensor& grad) {
  param.mutable_grad() = grad;
  optimizer.step();
}

}  // namespace bie::optim::test
