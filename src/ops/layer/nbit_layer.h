// Shared by q8/q4 linear and conv2d around their integer product: operands, and values of the backward pass. W is the
// layer's traits: op_name, range, code, packs (two codes per byte).
#pragma once

#include <string>

#include "ops/backend/backend.h"
#include "ops/backend/products.h"
#include "ops/gradient/nbit_grad.h"
#include "ops/layer/function.h"
#include "ops/quantize/quantizers.h"

namespace bie::ops {

/// Whether a tensor is one of numbers on the CPU, and none of a trace.
inline bool is_plain_cpu(const at::Tensor& t) {
  constexpr c10::DispatchKeySet of_traces({c10::DispatchKey::Python, c10::DispatchKey::Functionalize});
  return t.device().is_cpu() && !t.key_set().has_any(of_traces);
}

/// Kernel operands of a forward pass.
struct Operands {
  Quantiser quantiser;
  Weight weight;
};

/// `plain` = the weight is 4-bit codes of one byte each.
template <class W, class Args>
Operands operands(const Args& a, std::int64_t channels, bool plain) {
  const char* op = W::op_name;
  const at::Device device = a.x.device();
  const Scale scale_a = scale_of(op, "scale_a", a.scale_a, device);
  const Backend& backend = backend_of(op, device);
  if (is_codes(a.x)) backend.quantizers.check_scale_of_codes(op, scale_a);
  check_eps(op, a.eps);
  const at::Tensor panels = is_codes(a.weight) && !is_there(a.anchor)
                                ? backend.products.panels_of(a.weight, value_or_none(a.panels))
                                : at::Tensor();
  const at::Tensor bias = float_bias(op, value_or_none(a.bias_a), channels);
  check_one_device(op, {a.x, a.weight, bias, panels});
  Operands o{{bias, scale_a, {}, static_cast<float>(a.eps)}, {}};
  Weight& w = o.weight;
  if (!is_codes(a.weight)) {
    const WeightStep step = weight_step(op, a.weight, value_or_none(a.scale_w), a.eps, W::range);
    o.quantiser.scale_w = step.scale;
    w = backend.products.quantised(op, W::code, a.weight.flatten(1), step.scale, step.floor, W::range);
    return o;
  }
  o.quantiser.scale_w = scale_of(op, "scale_w", value_or_none(a.scale_w), device);
  // An anchored weight is in training: its panels would be stale after a step.
  if (panels.defined()) {
    w.panels = panels;
    return o;
  }
  if (plain) check_codes(op, "the weight", a.weight, W::range);
  w = plain ? backend.products.plain_codes(W::code, a.weight.flatten(1))
            : Weight{a.weight.contiguous(), W::code, {}, 1, {}};
  return o;
}

template <class Args>
GradMode grad_mode(const Args& a) {
  return a.reference_grad ? GradMode::reference : GradMode::exact;
}

/// Float values of a weight for a backward pass, and how its own gradient is finished.
template <class W, class Args>
struct WeightValues {
  const Args& a;
  at::Tensor weight;  ///< a float weight in float32
  WeightStep step{};

  explicit WeightValues(const Args& args) : a(args) {
    if (is_codes(a.weight)) {
      step.scale = scale_of(W::op_name, "scale_w", value_or_none(a.scale_w), a.x.device());
    } else {
      weight = a.weight.to(at::kFloat).contiguous();
      step = weight_step(W::op_name, a.weight, value_or_none(a.scale_w), a.eps, W::range);
    }
  }
  /// The argument for values(): the float weight, or the codes where they have one per byte.
  const at::Tensor& operand() const { return is_codes(a.weight) ? a.weight : weight; }
  /// The weight in a product: codes, unpacked, or a float weight.
  Factor factor(const at::Tensor& all) const {
    const WeightStep by_step = step;
    const auto values = [by_step](const at::Tensor& part, at::ScalarType dtype, const Scale& by) {
      return is_codes(part) ? code_values(part, by, dtype)
                            : quantized_values(part, by_step.scale, by_step.floor, W::range, by, dtype);
    };
    const auto codes = [by_step, all]() -> Codes {
      return {is_codes(all) ? all : quantize_codes(W::op_name, all, by_step.scale, by_step.floor, W::range)};
    };
    return {all, values, codes};
  }
  at::Tensor grad(const Scaled& unclipped, at::ScalarType dtype) const {
    if (is_codes(a.weight) || a.reference_grad) return weight_grad(unclipped, dtype);
    return weight_grad({mask_clipped(unclipped.multiplied(), weight, step, W::range)}, dtype);
  }
};

/// The scale of the activation in a backward pass: on the CPU a sentence where it is 0 and x tells that it was never
/// initialised.
template <class W, class Args>
Scale backward_scale(const Args& a) {
  check_eps(W::op_name, a.eps);
  const Scale scale = scale_of(W::op_name, "scale_a", a.scale_a, a.x.device());
  backend_of(W::op_name, a.x).quantizers.check_initialised(W::op_name, "scale_a", a.x, scale);
  return scale;
}

}  // namespace bie::ops
