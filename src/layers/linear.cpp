#include "bie/layers/linear.h"

namespace bie::layers {

BinaryLinearImpl::BinaryLinearImpl(const BinaryLinearOptions& o)
    : BinaryLayer({.kind = "BinaryLinear",
                   .bits = 1,
                   .activation_bits = 1,
                   .weight_shape = {o.out_features, o.in_features},
                   .feature_axis = -1,
                   .latent = o.latent,
                   .has_bias = o.bias},
                  o.symmetric),
      options_(o) {}

at::Tensor BinaryLinearImpl::prepack(const at::Tensor& packed) const {
  return ops::binary_prepack(packed, options_.in_features, gemm_kernel_id_);
}

void BinaryLinearImpl::set_gemm_kernel_id(std::int64_t id) {
  gemm_kernel_id_ = id;
  repack();
}

void BinaryLinearImpl::select_gemm_kernel(const at::Tensor& x) {
  const std::int64_t k = options_.in_features;
  TORCH_CHECK_VALUE(x.dim() >= 1 && x.size(-1) == k, "x: expected the layer's ", k, " features, got ", x.sizes());
  set_gemm_kernel_id(ops::select_binary_kernel(x.numel() / k, options_.out_features, k, x.device()));
}

at::Tensor BinaryLinearImpl::forward(const at::Tensor& x) {
  if (is_training()) prepare_params();
  const Activation a = activation(x);
  const Operand w = operand();
  return finish(ops::binary_linear(a.x, w.weight, scale_a, w.scale_w, a.bias_a,
                                   {options_.in_features, w.anchor, w.panels, gemm_kernel_id_}));
}

QLinearImpl::QLinearImpl(int bits, const QLinearOptions& o)
    : NbitLayer({.kind = bits == 8 ? "Q8Linear" : "Q4Linear",
                 .bits = bits,
                 .activation_bits = bits,
                 .weight_shape = {o.out_features, o.in_features},
                 .feature_axis = -1,
                 .latent = o.latent,
                 .has_bias = o.bias,
                 .has_channel_scale = o.channel_scales}),
      options_(o) {
  set_grad_mode(o.grad_mode);
}

at::Tensor QLinearImpl::prepack(const at::Tensor& packed) const {
  return weight_bits() == 8 ? ops::q8_prepack(packed) : ops::q4_prepack(packed, options_.in_features);
}

at::Tensor QLinearImpl::forward(const at::Tensor& x) {
  if (is_training()) prepare_params();
  const Activation a = activation(x);
  const Operand w = operand();
  const auto op = weight_bits() == 8 ? ops::q8_linear : ops::q4_linear;
  return finish(op(a.x, w.weight, scale_a, w.scale_w, a.bias_a,
                   {options_.in_features, smallest_step(), grad_mode(), w.anchor, w.panels}));
}

}  // namespace bie::layers
