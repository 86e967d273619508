#include "bie/nn/linear.h"

#include <ATen/core/grad_mode.h>

#include "nn/step_size.h"

namespace bie::nn {

BinaryLinearImpl::BinaryLinearImpl(const BinaryLinearOptions& options)
    : QuantLayer({options.out_features, options.in_features}, {options.out_features, (options.in_features + 7) / 8},
                 at::kByte),
      options_(options) {}

void BinaryLinearImpl::prepare_params() {
  if (!weight.defined() || !at::isFloatingType(weight.scalar_type())) return;
  const at::NoGradGuard no_grad;
  const auto [q, scale] = ops::binary_init(weight);
  weight.set_requires_grad(false);
  weight.set_data(q);
  scale_w.copy_(scale);
  repack();
}

QuantLayer::Packed BinaryLinearImpl::pack() const {
  // A float weight that was never prepared (latent training) has the scale that prepare_params would give it.
  const bool prepared = weight.scalar_type() == at::kChar;
  return {ops::pack_signs(weight), prepared ? scale_w : weight.abs().mean(at::kDouble).to(at::kFloat)};
}

at::Tensor BinaryLinearImpl::prepack(const at::Tensor& packed) const {
  return ops::binary_prepack(packed, options_.in_features);
}

at::Tensor BinaryLinearImpl::forward(const at::Tensor& x) {
  if (is_training() && !options_.latent) prepare_params();
  ready_activation(x, 2, /*axis=*/-1);
  const Operand w = operand();
  at::Tensor scale = w.scale_w.defined() ? w.scale_w : scale_w;
  if (is_training() && weight.defined() && at::isFloatingType(weight.scalar_type()))
    scale = weight.detach().abs().mean(at::kDouble).to(at::kFloat);
  return ops::binary_linear(x, w.weight, scale_a, scale, bias_a, {options_.in_features, w.anchor, w.panels});
}

Q8LinearImpl::Q8LinearImpl(const QLinearOptions& options)
    : QuantLayer({options.out_features, options.in_features}, {options.out_features, options.in_features}, at::kChar),
      options_(options) {}

QuantLayer::Packed Q8LinearImpl::pack() const {
  const auto [codes, scale] = ops::q8_quantize(weight);
  return {codes, scale};
}

at::Tensor Q8LinearImpl::prepack(const at::Tensor& packed) const { return ops::q8_prepack(packed); }

at::Tensor Q8LinearImpl::forward(const at::Tensor& x) {
  ready_activation(x, q8_step, /*axis=*/-1);
  const Operand w = operand();
  return ops::q8_linear(x, w.weight, scale_a, w.scale_w, bias_a,
                        {options_.in_features, step_eps, options_.grad_mode, w.anchor, w.panels});
}

Q4LinearImpl::Q4LinearImpl(const QLinearOptions& options)
    : QuantLayer({options.out_features, options.in_features}, {options.out_features, (options.in_features + 1) / 2},
                 at::kChar),
      options_(options) {}

void Q4LinearImpl::prepare_params() {
  if (prepared_ || !weight.defined()) return;
  const at::NoGradGuard no_grad;
  scale_w.copy_(q4_weight_scale(weight));
  prepared_ = true;
}

QuantLayer::Packed Q4LinearImpl::pack() const {
  const at::Tensor scale = prepared_ ? scale_w : q4_weight_scale(weight);
  return {ops::pack_int4(std::get<0>(ops::q4_quantize(weight, scale))), scale};
}

at::Tensor Q4LinearImpl::prepack(const at::Tensor& packed) const {
  return ops::q4_prepack(packed, options_.in_features);
}

at::Tensor Q4LinearImpl::forward(const at::Tensor& x) {
  if (is_training()) prepare_params();
  ready_activation(x, q4_step, /*axis=*/-1);
  const Operand w = operand();
  return ops::q4_linear(x, w.weight, scale_a, w.scale_w.defined() ? w.scale_w : scale_w, bias_a,
                        {options_.in_features, step_eps, options_.grad_mode, w.anchor, w.panels});
}

}  // namespace bie::nn
