#include "bie/layers/conv2d.h"

#include <c10/util/Exception.h>

namespace bie::layers {
namespace {

template <class Options>
std::vector<std::int64_t> filter_shape(const char* kind, const Options& o) {
  TORCH_CHECK_VALUE(o.groups >= 1 && o.in_channels % o.groups == 0 && o.out_channels % o.groups == 0, kind, ": ",
                    o.groups, " groups do not divide ", o.in_channels, " and ", o.out_channels, " channels");
  return {o.out_channels, o.in_channels / o.groups, o.kernel_size[0], o.kernel_size[1]};
}

const char* nbit_kind(int bits) { return bits == 8 ? "Q8Conv2d" : "Q4Conv2d"; }

template <class Options>
std::string geometry(const Options& o) {
  std::string text = c10::str(", kernel_size=", at::IntArrayRef(o.kernel_size));
  const auto add = [&](const char* name, const std::array<std::int64_t, 2>& pair, std::int64_t usual) {
    if (pair[0] != usual || pair[1] != usual) text += c10::str(", ", name, "=", at::IntArrayRef(pair));
  };
  add("stride", o.stride, 1);
  add("padding", o.padding, 0);
  add("dilation", o.dilation, 1);
  if (o.groups > 1) text += c10::str(", groups=", o.groups);
  return text;
}

std::string binary_geometry(const BinaryConv2dOptions& o) {
  std::string text = geometry(o);
  if (o.padding_value != -1) text += c10::str(", padding_value=", o.padding_value);
  return text;
}

void check_rank(const at::Tensor& x) {
  TORCH_CHECK_VALUE(x.dim() == 4, "x: expected [batch, channels, height, width], got ", x.sizes());
}

/// Throws unless the window fits somewhere.
template <class Options>
void check_window(const Options& o, const at::Tensor& x) {
  for (std::size_t i = 0; i < 2; ++i) {
    const std::int64_t span = o.dilation[i] * (o.kernel_size[i] - 1) + 1;
    const std::int64_t size = x.size(static_cast<std::int64_t>(i) + 2) + 2 * o.padding[i];
    TORCH_CHECK_VALUE(size >= span, "x is ", x.sizes(), ", smaller than a kernel of ", at::IntArrayRef(o.kernel_size),
                      " with padding ", at::IntArrayRef(o.padding), " and dilation ", at::IntArrayRef(o.dilation));
  }
}

}  // namespace

BinaryConv2dImpl::BinaryConv2dImpl(const BinaryConv2dOptions& o)
    : BinaryLayer({.kind = "BinaryConv2d",
                   .bits = 1,
                   .activation_bits = 1,
                   .weight_shape = filter_shape("BinaryConv2d", o),
                   .feature_axis = 1,
                   .latent = o.latent,
                   .has_bias = o.bias,
                   .geometry = binary_geometry(o),
                   .groups = o.groups},
                  o.symmetric),
      options_(o) {
  TORCH_CHECK_VALUE(o.padding_value == -1 || o.padding_value == 0,
                    "BinaryConv2d: padding_value: expected -1 or 0, got ", o.padding_value);
}

at::Tensor BinaryConv2dImpl::prepack(const at::Tensor& packed) const {
  return ops::binary_conv2d_prepack(packed, options_.in_channels, options_.kernel_size, options_.groups,
                                    options_.padding_value);
}

void BinaryConv2dImpl::check_input(const at::Tensor& x) const {
  check_rank(x);
  ActivationQuantizer::check_input(x);
  check_window(options_, x);
}

at::Tensor BinaryConv2dImpl::forward(const at::Tensor& x) {
  if (is_training()) prepare_params();
  const Activation a = activation(x);
  const Operand w = operand();
  return finish(ops::binary_conv2d(a.x, w.weight, scale_a, w.scale_w, a.bias_a,
                                   {options_.stride, options_.padding, options_.dilation, options_.groups,
                                    options_.padding_value, options_.kernel_size, w.anchor, w.panels}));
}

QConv2dImpl::QConv2dImpl(int bits, const QConv2dOptions& o)
    : NbitLayer({.kind = nbit_kind(bits),
                 .bits = bits,
                 .activation_bits = bits,
                 .weight_shape = filter_shape(nbit_kind(bits), o),
                 .feature_axis = 1,
                 .latent = o.latent,
                 .has_bias = o.bias,
                 .geometry = geometry(o),
                 .has_channel_scale = o.channel_scales,
                 .groups = o.groups}),
      options_(o) {
  set_grad_mode(o.grad_mode);
}

at::Tensor QConv2dImpl::prepack(const at::Tensor& packed) const {
  if (weight_bits() == 8) return ops::q8_conv2d_prepack(packed, options_.groups);
  return ops::q4_conv2d_prepack(packed, options_.in_channels, options_.kernel_size, options_.groups);
}

void QConv2dImpl::check_input(const at::Tensor& x) const {
  check_rank(x);
  ActivationQuantizer::check_input(x);
  check_window(options_, x);
}

at::Tensor QConv2dImpl::forward(const at::Tensor& x) {
  if (is_training()) prepare_params();
  const Activation a = activation(x);
  const Operand w = operand();
  const auto op = weight_bits() == 8 ? ops::q8_conv2d : ops::q4_conv2d;
  return finish(op(a.x, w.weight, scale_a, w.scale_w, a.bias_a,
                   {options_.stride, options_.padding, options_.dilation, options_.groups, options_.kernel_size,
                    smallest_step(), grad_mode(), w.anchor, w.panels}));
}

}  // namespace bie::layers
