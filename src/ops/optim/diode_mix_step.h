// The numbers and tensors of a step of DiodeMix as kernels take them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <vector>

#include "bie/kernels/diode_mix.h"
#include "bie/ops.h"
#include "ops/quantize/quantizers.h"
#include "ops/random.h"

namespace bie::ops {

inline kernels::AdamNumbers adam_numbers(const DiodeMixStep& o) {
  const auto f = [](double value) { return static_cast<float>(value); };
  return {f(o.beta1), f(o.beta2), f(1 - o.beta1), f(1 - o.beta2), f(o.eps), f(o.lr * o.weight_decay)};
}

inline kernels::SignNumbers sign_numbers(const DiodeMixStep& o) {
  return {static_cast<float>(1 - o.beta1), static_cast<float>(1 - o.beta2), static_cast<float>(o.lr)};
}

/// Adam's step size in the step with this number.
inline float adam_rate(const DiodeMixStep& o, std::int64_t number) {
  double step = o.lr;
  const double count = static_cast<double>(number);
  if (o.correct_bias) step *= std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count));
  return static_cast<float>(step);
}

/// CodeRange::mean_to_step of 8- or 4-bit codes.
inline double mean_to_step(std::int64_t bits) { return (bits == 8 ? q8_range : q4_range).mean_to_step; }

/// The gradient in the parameter's order of memory and in its dtype; that of an integer weight is int8 or float32.
inline at::Tensor gradient_in_order(const DiodeMixItem& item) {
  const at::Tensor &grad = item.grad, &param = item.param;
  at::ScalarType type = param.scalar_type();
  if (type == at::kChar && grad.scalar_type() != at::kChar) type = at::kFloat;
  if (grad.scalar_type() == type && grad.strides() == param.strides()) return grad;
  return at::empty_like(param, param.options().dtype(type).requires_grad(false)).copy_(grad);
}

/// The item as kernels take it, with its gradient in order.
inline kernels::DiodeMixTensor tensor_of(const DiodeMixItem& item, const at::Tensor& grad, const DiodeMixStep& o) {
  const Stream stream(static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(item.stream),
                      static_cast<std::uint64_t>(item.step));
  return {item.param.mutable_data_ptr(),     grad.const_data_ptr(),      item.exp_avg_l.mutable_data_ptr(),
          item.exp_avg_s.mutable_data_ptr(), item.param.numel(),         stream.start(),
          adam_rate(o, item.step),           static_cast<int>(item.bits)};
}

}  // namespace bie::ops
