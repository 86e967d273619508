// What the steps of DiodeMix share: their numbers, and the passes of each device behind the operators' checks.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <vector>

#include "bie/ops.h"
#include "ops/quantizers.h"
#include "ops/random.h"

namespace bie::ops {

/// Adam's constants in this step.
struct Adam {
  float b1, b2, d1, d2, eps, rate, decay;  ///< d1 and d2 are 1 - beta: of float32 betas they would be off by 1e-4

  /// Of the step with this number.
  Adam(const DiodeMixStep& o, std::int64_t number)
      : b1(static_cast<float>(o.beta1)),
        b2(static_cast<float>(o.beta2)),
        d1(static_cast<float>(1 - o.beta1)),
        d2(static_cast<float>(1 - o.beta2)),
        eps(static_cast<float>(o.eps)),
        decay(static_cast<float>(o.lr * o.weight_decay)) {
    double step = o.lr;
    const double count = static_cast<double>(number);
    if (o.correct_bias) step *= std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count));
    rate = static_cast<float>(step);
  }
};

/// The constants of a step of signs.
struct Lerps {
  float d1, d2, lr;

  explicit Lerps(const DiodeMixStep& o)
      : d1(static_cast<float>(1 - o.beta1)), d2(static_cast<float>(1 - o.beta2)), lr(static_cast<float>(o.lr)) {}
};

/// Of codes with these bits.
inline double mean_to_step(std::int64_t bits) { return (bits == 8 ? q8_range : q4_range).mean_to_step; }

inline Stream stream_of(const DiodeMixItem& item, const DiodeMixStep& o) {
  return {static_cast<std::uint64_t>(o.seed), static_cast<std::uint64_t>(item.stream),
          static_cast<std::uint64_t>(item.step)};
}

/// The gradient in the parameter's order of memory and in its dtype; that of an integer weight is int8 or float32.
inline at::Tensor gradient_in_order(const DiodeMixItem& item) {
  const at::Tensor &grad = item.grad, &param = item.param;
  at::ScalarType type = param.scalar_type();
  if (type == at::kChar && grad.scalar_type() != at::kChar) type = at::kFloat;
  if (grad.scalar_type() == type && grad.strides() == param.strides()) return grad;
  return at::empty_like(param, param.options().dtype(type).requires_grad(false)).copy_(grad);
}

void step_floats_cpu(const DiodeMixItem& item, const DiodeMixStep& o);
void step_codes_cpu(const DiodeMixItem& item, const DiodeMixStep& o);
void step_signs_cpu(const DiodeMixItem& item, const DiodeMixStep& o);

/// Items on one CUDA device. Steps of integer weights are left out whose gradient is not finite: one of floats that
/// holds NaN or infinity, or one of zeros, which is what int8_grad makes of it.
void step_floats_cuda(const char* op, const std::vector<DiodeMixItem>& items, const DiodeMixStep& o);
void step_codes_cuda(const char* op, const std::vector<DiodeMixItem>& items, const DiodeMixStep& o);
void step_signs_cuda(const char* op, const std::vector<DiodeMixItem>& items, const DiodeMixStep& o);

}  // namespace bie::ops
