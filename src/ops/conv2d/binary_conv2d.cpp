// binary_conv2d: checks, shapes, forward and backward (docs/spec/binary-conv2d.md).
#include <torch/library.h>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/conv_grads.h"
#include "ops/backend/products.h"
#include "ops/conv2d/conv2d_geometry.h"
#include "ops/gradient/sign_grad.h"
#include "ops/layer/function.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "binary_conv2d";
constexpr std::int64_t signs_a_byte = 8;

struct ConvArgs {
  at::Tensor x, weight, scale_a, scale_w;
  OptTensor bias_a;
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups, padding_value;
  OptPair kernel_size;
  OptTensor anchor, panels;
};
using Forward = Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                                  std::int64_t, OptPair, const OptTensor&, const OptTensor&),
                       ConvArgs>;

struct ConvBackwardArgs {
  at::Tensor g, x, weight, scale_a, scale_w;
  OptTensor bias_a;
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups, padding_value;
  at::IntArrayRef kernel_size;
  std::optional<at::ScalarType> weight_grad;
};
using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const at::Tensor&, const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                              std::int64_t, std::int64_t, at::IntArrayRef, std::optional<at::ScalarType>),
                        ConvBackwardArgs>;

bool is_packed(const at::Tensor& t) { return t.scalar_type() == at::kByte; }

template <class Args>
Movement movement(const Args& a) {
  return {a.stride, a.padding, a.dilation, a.groups};
}

int pad_code(const char* op, std::int64_t padding_value) {
  TORCH_CHECK_VALUE(padding_value == 0 || padding_value == -1, op, ": padding_value: expected -1 or 0, got ",
                    padding_value);
  return static_cast<int>(padding_value);
}

template <class Args>
Geometry check_geometry(const Args& a) {
  check_image(op_name, a.x);
  check_float(op_name, "x", a.x);
  if (!is_packed(a.weight) && !is_codes(a.weight)) check_float(op_name, "the weight", a.weight);
  pad_code(op_name, a.padding_value);
  return check_filter(op_name, a.x, a.weight, is_packed(a.weight), signs_a_byte, "packed signs", a.kernel_size,
                      movement(a));
}

at::Tensor forward_meta(const ConvArgs& a) {
  check_meta(op_name, "x", a.x);
  return empty_output(op_name, a.x, check_geometry(a), movement(a));
}

at::Tensor forward(const ConvArgs& a) {
  const Geometry g = check_geometry(a);
  const at::Device device = a.x.device();
  const Quantiser q{float_bias(op_name, value_or_none(a.bias_a), g.in_c),
                    scale_of(op_name, "scale_a", a.scale_a, device), scale_of(op_name, "scale_w", a.scale_w, device)};
  at::Tensor y = empty_output(op_name, a.x, g, movement(a));
  if (y.numel() == 0) return y;
  const Products& products = backend_of(op_name, device).products;
  Weight w;
  if (g.packed) w.panels = products.panels_of(a.weight, value_or_none(a.panels));
  check_one_device(op_name, {a.x, a.weight, q.bias, w.panels});
  if (!w.panels.defined())
    w = g.packed ? Weight{a.weight.contiguous(), kernels::Dtype::bits, {}, 1, {}}
                 : products.signs(op_name, a.weight.flatten(1));
  kernels::Conv2dShape shape = kernel_shape(a.x, g, movement(a));
  shape.pad_code = static_cast<int>(a.padding_value);
  products.conv2d(op_name, kernels::Dtype::bits, shape, a.x.contiguous(a.x.suggest_memory_format()), q, w, y);
  return y;
}

/// Geometry of the forward pass, after checking that g, x and the weight fit it.
Geometry check_backward(const ConvBackwardArgs& a) {
  const Geometry geometry = check_geometry(a);
  TORCH_CHECK_VALUE(geometry.out_c > 0, op_name, ": the weight: expected at least one output channel, got ",
                    a.weight.sym_sizes());
  TORCH_CHECK_VALUE(!a.weight_grad || !geometry.packed, op_name, ": a weight of packed signs cannot be trained");
  check_output_grad(op_name, a.g, output_sizes(op_name, a.x, geometry, movement(a)), a.x, a.weight, a.weight_grad);
  return geometry;
}

Grads backward_meta(const ConvBackwardArgs& a) {
  check_backward(a);
  return empty_grads(op_name, a.x, a.x.suggest_memory_format(), /*want_x=*/true, a.weight, a.scale_a,
                     value_or_none(a.bias_a), a.weight_grad);
}

Grads backward(const ConvBackwardArgs& a) {
  const Geometry g = check_backward(a);
  const Scale sa = scale_of(op_name, "scale_a", a.scale_a, a.x.device());
  const Scale sw = scale_of(op_name, "scale_w", a.scale_w, a.x.device());
  const Backend& backend = backend_of(op_name, a.x);
  backend.quantizers.check_initialised(op_name, "scale_a", a.x, sa);
  const at::Tensor bias = float_bias(op_name, value_or_none(a.bias_a), g.in_c);
  check_one_device(op_name, {a.x, a.g, a.weight, bias});
  at::Tensor filter = a.weight;
  if (g.packed) {
    const std::int64_t depth = g.depth(a.groups);
    filter = unpack_signs(a.weight.reshape({g.out_c, (depth + 7) / 8}), depth)
                 .view({g.out_c, g.in_c / a.groups, g.kernel_h, g.kernel_w});
  }
  ConvGradCall call{op_name, a.g, a.x, bias, value_or_none(a.bias_a), a.scale_a, sa, movement(a)};
  call.pads_with_minus_one = a.padding_value == -1;
  call.filter = factor_of_signs(filter);
  call.filter_scale = sw;
  call.values = [](const at::Tensor& xs, const Scale& by) { return sign_values(xs, by); };
  call.scales_behind = true;
  call.rule = sign_rule(a.x);
  if (a.weight_grad) call.of_weight = [&](const Scaled& grad) { return weight_grad(grad, *a.weight_grad); };
  return backend.conv_grads.run(call);
}

struct BinaryConv2d {
  using Args = ConvArgs;
  static constexpr const char* op_name = ops::op_name;

  static at::Tensor call(const Args& a) {
    static const auto op = find_layer_op<BinaryConv2d, Forward::Signature>();
    return op.call(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.stride, a.padding, a.dilation, a.groups,
                   a.padding_value, a.kernel_size, a.anchor, a.panels);
  }

  static WeightCodes codes_of(const Args&) { return {}; }

  static void save(SavedData& to, const Args& a) {
    const Geometry g = check_geometry(a);
    to["stride"] = a.stride.vec();
    to["padding"] = a.padding.vec();
    to["dilation"] = a.dilation.vec();
    to["groups"] = a.groups;
    to["padding_value"] = a.padding_value;
    to["kernel_size"] = std::vector<std::int64_t>{g.kernel_h, g.kernel_w};
  }

  static Grads call_backward(SavedData& from, const at::Tensor& g, const torch::autograd::variable_list& saved,
                             std::optional<at::ScalarType> weight_grad) {
    static const auto op = find_layer_op<BinaryConv2d, Backward::Signature>("_backward");
    return op.call(g, saved[0], saved[1], saved[2], saved[3], none_if_undefined(saved[4]), from["stride"].toIntVector(),
                   from["padding"].toIntVector(), from["dilation"].toIntVector(), from["groups"].toInt(),
                   from["padding_value"].toInt(), from["kernel_size"].toIntVector(), weight_grad);
  }
};

at::Tensor prepack(const at::Tensor& weight, std::int64_t in_channels, at::IntArrayRef kernel_size, std::int64_t groups,
                   std::int64_t padding_value) {
  const char* op = "binary_conv2d_prepack";
  TORCH_CHECK_TYPE(is_packed(weight), op, ": the weight: expected packed signs (uint8), got ", weight.scalar_type());
  kernels::Conv2dShape shape = packed_filter_shape(op, weight, signs_a_byte, in_channels, kernel_size, groups);
  shape.pad_code = pad_code(op, padding_value);
  return backend_of(op, weight).products.prepack_conv2d(op, kernels::Dtype::bits, weight, shape);
}

}  // namespace

at::Tensor binary_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                         const at::Tensor& scale_w, const at::Tensor& bias_a, const BinaryConv2dOptions& o) {
  return BinaryConv2d::call({x, weight, scale_a, scale_w, none_if_undefined(bias_a), o.stride, o.padding, o.dilation,
                             o.groups, o.padding_value,
                             o.kernel_size ? OptPair(at::IntArrayRef(*o.kernel_size)) : OptPair(),
                             none_if_undefined(o.anchor), none_if_undefined(o.panels)});
}

at::Tensor binary_conv2d_prepack(const at::Tensor& weight, std::int64_t in_channels,
                                 std::array<std::int64_t, 2> kernel_size, std::int64_t groups,
                                 std::int64_t padding_value) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, std::int64_t, at::IntArrayRef, std::int64_t, std::int64_t)>(
          "bie::binary_conv2d_prepack");
  return op.call(weight, in_channels, kernel_size, groups, padding_value);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("binary_conv2d", Forward::of<forward>);
  m.impl("binary_conv2d_backward", Backward::of<backward>);
  m.impl("binary_conv2d_prepack", prepack);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("binary_conv2d", Forward::of<forward_meta>);
  m.impl("binary_conv2d_backward", Backward::of<backward_meta>);
  m.impl("binary_conv2d_prepack", prepack);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("binary_conv2d", Forward::of<forward_autograd<BinaryConv2d>>);
}
