// What q8/q4 linear and conv2d share around their integer product: operands, values of the backward pass.
// W says which layer it is: op_name, range, packs (two codes a byte), table().
#pragma once

#include <string>

#include "ops/backend/cuda/mixed_product.h"
#include "ops/gradient/nbit_grad.h"
#include "ops/layer_function.h"
#include "ops/quantize/quantizers.h"

namespace bie::ops {

/// What a forward pass hands to the kernel.
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
  TORCH_CHECK_VALUE(!is_codes(a.x) || device.is_cuda() || scale_a.value != 0, op,
                    ": scale_a is not initialised, which only a float x can do (init_scale_)");
  check_eps(op, a.eps);
  const at::Tensor panels = is_codes(a.weight) && !is_there(a.anchor) ? panels_of(a.weight, a.panels) : at::Tensor();
  const at::Tensor bias = float_bias(op, value_or_none(a.bias_a), channels);
  check_one_device(op, {a.x, a.weight, bias, panels});
  Operands o{{bias, scale_a, {}, static_cast<float>(a.eps)}, {}};
  Weight& w = o.weight;
  w.dtype = W::packs ? kernels::Dtype::s4 : kernels::Dtype::s8;
  const auto pack = [](const at::Tensor& codes) { return W::packs ? pack_int4(codes.flatten(1)) : codes; };
  if (!is_codes(a.weight)) {
    const WeightStep step = weight_step(op, a.weight, value_or_none(a.scale_w), a.eps, W::range);
    o.quantiser.scale_w = step.scale;
    if (device.is_cuda())  // quantised while it is arranged
      w = {a.weight.contiguous(), kernel_dtype(op, "the weight", a.weight), step.scale, step.floor, {}};
    else
      w.values = pack(quantize_codes(op, a.weight, step.scale, step.floor, W::range));
    return o;
  }
  o.quantiser.scale_w = scale_of(op, "scale_w", value_or_none(a.scale_w), device);
  // An anchored weight is in training: its panels would be stale after a step.
  w.panels = panels;
  if (panels.defined()) return o;
  if (plain) check_codes(op, "the weight", a.weight, W::range);
  if (plain && device.is_cuda())
    w = {a.weight.contiguous(), kernels::Dtype::s8, {}, 1, {}};
  else
    w.values = plain ? pack(a.weight) : a.weight.contiguous();
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
  /// What values() takes, where a weight of codes has one a byte.
  const at::Tensor& operand() const { return is_codes(a.weight) ? a.weight : weight; }
  /// q_w * by of codes, unpacked, or of a float weight; all of it or a part.
  at::Tensor values(const at::Tensor& part, const Scale& by, at::ScalarType dtype = at::kFloat) const {
    return is_codes(part) ? code_values(part, by, dtype)
                          : quantized_values(part, step.scale, step.floor, W::range, by, dtype);
  }
  /// The codes of codes, unpacked, or of a float weight on CUDA.
  Codes codes(const at::Tensor& all) const {
    return {is_codes(all) ? all : quantize_codes(W::op_name, all, step.scale, step.floor, W::range)};
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
  if (!a.x.is_cuda()) check_initialised(W::op_name, "scale_a", a.x, scale.value);
  return scale;
}

}  // namespace bie::ops
