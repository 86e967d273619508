#include "bie/nn/conv2d.h"

#include <ATen/core/grad_mode.h>

#include <vector>

#include "nn/step_size.h"

namespace bie::nn {
namespace {

std::vector<std::int64_t> weight_shape(const QConv2dOptions& o) {
  return {o.out_channels, o.in_channels, o.kernel_size[0], o.kernel_size[1]};
}

std::vector<std::int64_t> packed_int4_shape(const QConv2dOptions& o) {
  if (o.in_channels % 2 == 0) return {o.out_channels, o.kernel_size[0], o.kernel_size[1], o.in_channels / 2};
  return {o.out_channels, (o.in_channels * o.kernel_size[0] * o.kernel_size[1] + 1) / 2};
}

ops::QConv2dOptions call_options(const QConv2dOptions& o, const at::Tensor& anchor, const at::Tensor& panels) {
  return {o.stride, o.padding, o.dilation, o.kernel_size, step_eps, o.grad_mode, anchor, panels};
}

}  // namespace

Q8Conv2dImpl::Q8Conv2dImpl(const QConv2dOptions& options)
    : QuantLayer(weight_shape(options), weight_shape(options), at::kChar), options_(options) {}

QuantLayer::Packed Q8Conv2dImpl::pack() const {
  const auto [codes, scale] = ops::q8_quantize(weight);
  return {codes, scale};
}

at::Tensor Q8Conv2dImpl::prepack(const at::Tensor& packed) const { return ops::q8_conv2d_prepack(packed); }

at::Tensor Q8Conv2dImpl::forward(const at::Tensor& x) {
  ready_activation(x, q8_step, /*axis=*/1);
  const Operand w = operand();
  return ops::q8_conv2d(x, w.weight, scale_a, w.scale_w, bias_a, call_options(options_, w.anchor, w.panels));
}

Q4Conv2dImpl::Q4Conv2dImpl(const QConv2dOptions& options)
    : QuantLayer(weight_shape(options), packed_int4_shape(options), at::kChar), options_(options) {}

void Q4Conv2dImpl::prepare_params() {
  if (prepared_ || !weight.defined()) return;
  const at::NoGradGuard no_grad;
  scale_w.copy_(q4_weight_scale(weight));
  prepared_ = true;
}

QuantLayer::Packed Q4Conv2dImpl::pack() const {
  const at::Tensor scale = prepared_ ? scale_w : q4_weight_scale(weight);
  const at::Tensor codes = std::get<0>(ops::q4_quantize(weight, scale));
  return {ops::pack_int4(codes.view({options_.out_channels, -1})).view(packed_int4_shape(options_)), scale};
}

at::Tensor Q4Conv2dImpl::prepack(const at::Tensor& packed) const {
  return ops::q4_conv2d_prepack(packed, options_.in_channels, options_.kernel_size);
}

at::Tensor Q4Conv2dImpl::forward(const at::Tensor& x) {
  if (is_training()) prepare_params();
  ready_activation(x, q4_step, /*axis=*/1);
  const Operand w = operand();
  return ops::q4_conv2d(x, w.weight, scale_a, w.scale_w.defined() ? w.scale_w : scale_w, bias_a,
                        call_options(options_, w.anchor, w.panels));
}

}  // namespace bie::nn
