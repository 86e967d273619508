// q8_conv2d and q4_conv2d: checks, shapes, forward and backward (docs/spec/nbit-conv2d.md).
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/conv_grads.h"
#include "ops/backend/products.h"
#include "ops/conv2d/conv2d_geometry.h"
#include "ops/layer/nbit_layer.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_conv2d";
  static constexpr const CodeRange& range = q8_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s8;
  static constexpr bool packs = false;
};

struct Width4 {
  static constexpr const char* op_name = "q4_conv2d";
  static constexpr const CodeRange& range = q4_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s4;
  static constexpr bool packs = true;
};

struct ConvArgs {
  at::Tensor x, weight, scale_a;
  OptTensor scale_w, bias_a;
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;
  OptPair kernel_size;
  double eps;
  bool reference_grad;
  OptTensor anchor, panels;
};
using Forward = Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                                  const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, std::int64_t,
                                  OptPair, double, bool, const OptTensor&, const OptTensor&),
                       ConvArgs>;

struct ConvBackwardArgs {
  at::Tensor g, x, weight, scale_a;
  OptTensor scale_w, bias_a;
  at::IntArrayRef stride, padding, dilation;
  std::int64_t groups;
  at::IntArrayRef kernel_size;
  double eps;
  bool reference_grad;
  std::optional<at::ScalarType> weight_grad;
};
using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const OptTensor&, const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                              std::int64_t, at::IntArrayRef, double, bool, std::optional<at::ScalarType>),
                        ConvBackwardArgs>;

template <class Args>
Movement movement(const Args& a) {
  return {a.stride, a.padding, a.dilation, a.groups};
}

/// Geometry that the weight and x agree on; refuses them where they disagree. An int8 weight with an anchor is plain
/// codes; without one, the packed form is tried first.
template <class W, class Args>
Geometry check_geometry(const Args& a, bool anchored) {
  const at::Tensor &x = a.x, &weight = a.weight;
  const OptPair kernel_size = a.kernel_size;
  const char* op = W::op_name;
  check_image(op, x);
  if (!is_codes(x)) check_float(op, "x", x);
  if (!is_codes(weight)) check_float(op, "the weight", weight);
  bool packed = W::packs && is_codes(weight);
  if (packed && weight.dim() == 4) {
    const std::int64_t in_c = fixed_size(x, 1) / std::max<std::int64_t>(1, a.groups);
    const auto is_kernel = [&](int axis) {
      return !kernel_size || (kernel_size->size() == 2 && (*kernel_size)[0] == fixed_size(weight, axis) &&
                              (*kernel_size)[1] == fixed_size(weight, axis + 1));
    };
    // With kernel_size the labels [o, kh, kw, c/2] and [o, c, kh, kw] never coincide: kh = c, kw = kh, c/2 = kw, so c =
    // 0.
    const bool fits_packed = 2 * fixed_size(weight, 3) == in_c && is_kernel(1);
    const bool fits_plain = fixed_size(weight, 1) == in_c && is_kernel(2);
    packed = anchored ? fits_packed && !fits_plain : fits_packed || !fits_plain;
  }
  TORCH_CHECK_VALUE(!packed || !anchored, op, ": a packed int4 weight cannot be trained");
  return check_filter(op, x, weight, packed, 2, "packed int4", kernel_size, movement(a));
}

template <class W>
at::Tensor forward_meta(const ConvArgs& a) {
  check_meta(W::op_name, "x", a.x);
  return empty_output(W::op_name, a.x, check_geometry<W>(a, is_there(a.anchor)), movement(a));
}

/// The codes of packed int4 rows, [out_c, in_c/groups, kh, kw].
at::Tensor unpacked(const at::Tensor& weight, const Geometry& g, std::int64_t groups) {
  const std::int64_t depth = g.depth(groups);
  return unpack_int4(weight.reshape({g.out_c, (depth + 1) / 2}), depth)
      .view({g.out_c, g.in_c / groups, g.kernel_h, g.kernel_w});
}

template <class W>
at::Tensor forward(const ConvArgs& a) {
  const char* op = W::op_name;
  const Geometry g = check_geometry<W>(a, is_there(a.anchor));
  if (is_codes(a.x)) check_codes(op, "x", a.x, W::range);
  const Operands o = operands<W>(a, g.in_c, W::packs && !g.packed);
  at::Tensor y = empty_output(op, a.x, g, movement(a));
  if (y.numel() == 0) return y;
  backend_of(op, a.x).products.conv2d(op, W::code, kernel_shape(a.x, g, movement(a)),
                                      a.x.contiguous(a.x.suggest_memory_format()), o.quantiser, o.weight, y);
  return y;
}

/// Geometry of the forward pass, after checking that g, x and the weight fit it. kernel_size tells plain from packed.
template <class W>
Geometry check_backward(const ConvBackwardArgs& a) {
  const Geometry geometry = check_geometry<W>(a, /*anchored=*/false);
  TORCH_CHECK_VALUE(geometry.out_c > 0, W::op_name, ": the weight: expected at least one output channel, got ",
                    a.weight.sym_sizes());
  TORCH_CHECK_VALUE(!a.weight_grad || !geometry.packed, W::op_name, ": a packed int4 weight cannot be trained");
  check_output_grad(W::op_name, a.g, output_sizes(W::op_name, a.x, geometry, movement(a)), a.x, a.weight,
                    a.weight_grad);
  return geometry;
}

template <class W>
Grads backward_meta(const ConvBackwardArgs& a) {
  check_backward<W>(a);
  return empty_grads(W::op_name, a.x, a.x.suggest_memory_format(), !is_codes(a.x), a.weight, a.scale_a,
                     value_or_none(a.bias_a), a.weight_grad);
}

template <class W>
Grads backward(const ConvBackwardArgs& a) {
  const Geometry geometry = check_backward<W>(a);
  const Scale scale = backward_scale<W>(a);
  const at::Tensor bias = float_bias(W::op_name, value_or_none(a.bias_a), geometry.in_c);
  check_one_device(W::op_name, {a.x, a.g, a.weight, bias});
  const WeightValues<W, ConvBackwardArgs> w(a);
  const auto floor = static_cast<float>(a.eps);
  ConvGradCall call{W::op_name, a.g, a.x, bias, value_or_none(a.bias_a), a.scale_a, scale, movement(a)};
  call.filter = w.factor(geometry.packed ? unpacked(a.weight, geometry, a.groups) : w.operand());
  call.filter_scale = w.step.scale;
  call.values = [&](const at::Tensor& xs, const Scale& by) {
    return is_codes(xs) ? code_values(xs, by) : quantized_values(xs, scale, floor, W::range, by);
  };
  call.rule = code_rule(a.x, W::range, grad_mode(a), floor);
  if (a.weight_grad) call.of_weight = [&](const Scaled& grad) { return w.grad(grad, *a.weight_grad); };
  return backend_of(W::op_name, a.x).conv_grads.run(call);
}

template <class W>
struct Conv2d {
  using Args = ConvArgs;
  static constexpr const char* op_name = W::op_name;

  static at::Tensor call(const Args& a) {
    static const auto op = find_layer_op<W, Forward::Signature>();
    return op.call(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.stride, a.padding, a.dilation, a.groups,
                   a.kernel_size, a.eps, a.reference_grad, a.anchor, a.panels);
  }

  static WeightCodes codes_of(const Args&) { return {}; }

  static void save(SavedData& to, const Args& a) {
    const Geometry g = check_geometry<W>(a, is_there(a.anchor));
    to["stride"] = a.stride.vec();
    to["padding"] = a.padding.vec();
    to["dilation"] = a.dilation.vec();
    to["groups"] = a.groups;
    to["kernel_size"] = std::vector<std::int64_t>{g.kernel_h, g.kernel_w};
    to["eps"] = a.eps;
    to["reference_grad"] = a.reference_grad;
  }

  static Grads call_backward(SavedData& from, const at::Tensor& g, const torch::autograd::variable_list& saved,
                             std::optional<at::ScalarType> weight_grad) {
    static const auto op = find_layer_op<W, Backward::Signature>("_backward");
    return op.call(g, saved[0], saved[1], saved[2], none_if_undefined(saved[3]), none_if_undefined(saved[4]),
                   from["stride"].toIntVector(), from["padding"].toIntVector(), from["dilation"].toIntVector(),
                   from["groups"].toInt(), from["kernel_size"].toIntVector(), from["eps"].toDouble(),
                   from["reference_grad"].toBool(), weight_grad);
  }
};

at::Tensor q8_prepack_any(const at::Tensor& weight, std::int64_t groups) {
  const char* op = "q8_conv2d_prepack";
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight: expected int8, got ", weight.scalar_type());
  TORCH_CHECK_VALUE(weight.dim() == 4 && weight.sym_numel() > 0, op,
                    ": the weight: expected four axes, none empty, got ", weight.sym_sizes());
  kernels::Conv2dShape shape{
      1, fixed_size(weight, 1) * groups, 1, 1, fixed_size(weight, 0), fixed_size(weight, 2), fixed_size(weight, 3)};
  TORCH_CHECK_VALUE(groups >= 1 && shape.out_c % groups == 0, op, ": ", groups, " groups do not divide ", shape.out_c,
                    " outputs");
  shape.groups = groups;
  return backend_of(op, weight).products.prepack_conv2d(op, Width8::code, weight, shape);
}

at::Tensor q4_prepack_any(const at::Tensor& weight, std::int64_t in_channels, at::IntArrayRef kernel_size,
                          std::int64_t groups) {
  const char* op = "q4_conv2d_prepack";
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight: expected packed int4 (int8), got ", weight.scalar_type());
  return backend_of(op, weight)
      .products.prepack_conv2d(op, Width4::code, weight,
                               packed_filter_shape(op, weight, 2, in_channels, kernel_size, groups));
}

template <class W>
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                  const at::Tensor& bias_a, const QConv2dOptions& o) {
  return Conv2d<W>::call(
      {x, weight, scale_a, none_if_undefined(scale_w), none_if_undefined(bias_a), o.stride, o.padding, o.dilation,
       o.groups, o.kernel_size ? OptPair(at::IntArrayRef(*o.kernel_size)) : OptPair(), o.eps,
       o.grad_mode == GradMode::reference, none_if_undefined(o.anchor), none_if_undefined(o.panels)});
}

}  // namespace

at::Tensor q8_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QConv2dOptions& options) {
  return conv2d<Width8>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q4_conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QConv2dOptions& options) {
  return conv2d<Width4>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q8_conv2d_prepack(const at::Tensor& weight, std::int64_t groups) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t)>("bie::q8_conv2d_prepack");
  return op.call(weight, groups);
}

at::Tensor q4_conv2d_prepack(const at::Tensor& weight, std::int64_t in_channels,
                             std::array<std::int64_t, 2> kernel_size, std::int64_t groups) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, std::int64_t, at::IntArrayRef, std::int64_t)>("bie::q4_conv2d_prepack");
  return op.call(weight, in_channels, kernel_size, groups);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward<Width8>>);
  m.impl("q8_conv2d_backward", Backward::of<backward<Width8>>);
  m.impl("q4_conv2d", Forward::of<forward<Width4>>);
  m.impl("q4_conv2d_backward", Backward::of<backward<Width4>>);
  m.impl("q8_conv2d_prepack", q8_prepack_any);
  m.impl("q4_conv2d_prepack", q4_prepack_any);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_meta<Width8>>);
  m.impl("q8_conv2d_backward", Backward::of<backward_meta<Width8>>);
  m.impl("q4_conv2d", Forward::of<forward_meta<Width4>>);
  m.impl("q4_conv2d_backward", Backward::of<backward_meta<Width4>>);
  m.impl("q8_conv2d_prepack", q8_prepack_any);
  m.impl("q4_conv2d_prepack", q4_prepack_any);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_autograd<Conv2d<Width8>>>);
  m.impl("q4_conv2d", Forward::of<forward_autograd<Conv2d<Width4>>>);
}
