// binary_conv2d: checks, shapes, forward and backward (numerics.md section 4).
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include <limits>

#include "bie/ops.h"
#include "ops/conv2d/conv2d_grad.h"
#include "ops/gradient/sign_grad.h"
#include "ops/layer_function.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "binary_conv2d";
constexpr std::int64_t signs_a_byte = 8;

/// Whether it runs on codes: CUDA's rows of bits take one group and pad with -1.
bool runs_on_codes(const at::Tensor& weight, std::int64_t groups, std::int64_t padding_value) {
  return weight.is_cuda() && (groups != 1 || padding_value != -1);
}

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
  TORCH_CHECK_VALUE(padding_value == 0 || padding_value == -1, op, ": padding_value is ", padding_value,
                    ", -1 or 0 is wanted");
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

/// bit(t) as int8 +1 and -1.
at::Tensor sign_codes(const at::Tensor& t) { return t.ge(0).to(at::kChar).mul_(2).sub_(1); }

/// The signs that the window meets, padding of -1 included.
at::Tensor padded(const at::Tensor& signs, at::IntArrayRef padding) {
  const at::Tensor pixels = signs.permute({0, 2, 3, 1});
  if (signs.scalar_type() == at::kChar && pixels.is_contiguous() && signs.size(1) % 8 == 0) {
    // Eight codes of -1 are one number of -1.
    const at::Tensor wide = pixels.view(at::kLong);
    return at::constant_pad_nd(wide, {0, 0, padding[1], padding[1], padding[0], padding[0]}, -1)
        .view(at::kChar)
        .permute({0, 3, 1, 2});
  }
  return at::constant_pad_nd(signs, {padding[1], padding[1], padding[0], padding[0]}, -1)
      .contiguous(signs.suggest_memory_format());
}

constexpr std::int64_t no_padding[] = {0, 0};

bool has_rim(std::int64_t padding_value, at::IntArrayRef padding) {
  return padding_value == -1 && (padding[0] > 0 || padding[1] > 0);
}

/// A filter of any form as 8-bit codes of one group.
at::Tensor dense_codes(const at::Tensor& weight, const Geometry& g, std::int64_t groups) {
  const std::int64_t depth = g.depth(groups);
  const at::Tensor signs =
      (g.packed ? unpack_signs(weight.reshape({g.out_c, (depth + 7) / 8}), depth) : sign_codes(weight.flatten(1)))
          .view({g.out_c, g.in_c / groups, g.kernel_h, g.kernel_w});
  return one_group(signs, groups);
}

/// Writes y on CUDA, by products of codes: every element NaN where x or the bias holds NaN or infinity.
void run_codes(const ConvArgs& a, const Geometry& g, Quantiser q, const at::Tensor& y) {
  at::Tensor xs = a.x.to(at::kFloat);
  if (q.bias.defined()) xs = xs.add(q.bias.view({1, -1, 1, 1}));
  const at::Tensor scale = q.scale_a.device.defined() ? q.scale_a.device : at::full({}, q.scale_a.value, xs.options());
  q.scale_a.device = at::where(xs.isfinite().all(), scale, std::numeric_limits<float>::quiet_NaN()).to(at::kFloat);
  q.bias = at::Tensor();
  at::Tensor codes = sign_codes(xs).contiguous(a.x.suggest_memory_format());
  Movement move = movement(a);
  move.groups = 1;
  if (has_rim(a.padding_value, a.padding)) {
    codes = padded(codes, a.padding);
    move.padding = no_padding;
  }
  Weight w;
  w.dtype = kernels::Dtype::s8;
  if (g.packed) w.panels = panels_of(a.weight, a.panels);
  if (!w.panels.defined()) w.values = dense_codes(a.weight, g, a.groups);
  run_conv2d(op_name, conv2d_tables(kernels::Dtype::s8), kernel_shape(codes, g, move), codes, q, w, y);
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
  Weight w;
  w.dtype = kernels::Dtype::bits;
  if (g.packed) w.panels = panels_of(a.weight, a.panels);
  check_one_device(op_name, {a.x, a.weight, q.bias, w.panels});
  if (runs_on_codes(a.weight, a.groups, a.padding_value)) {
    run_codes(a, g, q, y);
    return y;
  }
  if (!w.panels.defined() && !g.packed && a.weight.is_cuda()) {
    w.values = a.weight.contiguous();
    w.dtype = kernel_dtype(op_name, "the weight", a.weight);
  } else if (!w.panels.defined()) {
    w.values = g.packed ? a.weight.contiguous() : pack_signs(a.weight.flatten(1));
  }
  kernels::Conv2dShape shape = kernel_shape(a.x, g, movement(a));
  shape.pad_code = static_cast<int>(a.padding_value);
  run_conv2d(op_name, conv2d_tables(kernels::Dtype::bits), shape, a.x.contiguous(a.x.suggest_memory_format()), q, w, y);
  return y;
}

/// What the forward pass found, once g, x and the weight are proved to fit.
Geometry check_backward(const ConvBackwardArgs& a) {
  const Geometry geometry = check_geometry(a);
  TORCH_CHECK_VALUE(geometry.out_c > 0, op_name, ": the weight is ", a.weight.sym_sizes(),
                    ", at least one output channel is wanted");
  TORCH_CHECK_VALUE(!a.weight_grad || !geometry.packed, op_name, ": a weight of packed signs cannot be trained");
  check_output_grad(op_name, a.g, output_sizes(op_name, a.x, geometry, movement(a)), a.x, a.weight, a.weight_grad);
  return geometry;
}

Grads backward_meta(const ConvBackwardArgs& a) {
  check_backward(a);
  return empty_grads(op_name, a.x, a.x.suggest_memory_format(), /*want_x=*/true, a.weight, a.scale_a,
                     value_or_none(a.bias_a), a.weight_grad);
}

/// On CUDA: products of codes, scaled by the passes behind them, and one pass for all gradients of the image.
Grads cuda_backward(const ConvBackwardArgs& a, const at::Tensor& filter, const at::Tensor& bias, const Scale& sa,
                    const Scale& sw) {
  const ConvOutputGrad g(op_name, a.g, movement(a));
  const LinearInput in = pixels_of(a.x, bias, a.bias_a, a.scale_a, sa);
  const InputGrads found =
      sign_input_grads(g.through(codes_of_signs(filter), sw, a.x.sizes()), in, a.weight_grad.has_value());
  Grads grads{image_of(found.x, a.x.sizes()).contiguous(a.x.suggest_memory_format()), {}, found.scale_a, found.bias_a};
  if (a.weight_grad) {
    const bool rim = has_rim(a.padding_value, a.padding);
    const at::Tensor signs = image_of(found.operand, a.x.sizes());
    const Scaled grad = rim ? g.against(padded(signs, a.padding), sa, filter.sizes(), no_padding)
                            : g.against(signs, sa, filter.sizes(), a.padding);
    std::get<1>(grads) = weight_grad(grad, *a.weight_grad);
  }
  return grads;
}

Grads backward(const ConvBackwardArgs& a) {
  const Geometry g = check_backward(a);
  const Scale sa = scale_of(op_name, "scale_a", a.scale_a, a.x.device());
  const Scale sw = scale_of(op_name, "scale_w", a.scale_w, a.x.device());
  if (!a.x.is_cuda()) check_initialised(op_name, "scale_a", a.x, sa.value);
  const at::Tensor bias = float_bias(op_name, value_or_none(a.bias_a), g.in_c);
  check_one_device(op_name, {a.x, a.g, a.weight, bias});
  at::Tensor filter = a.weight;
  if (g.packed) {
    const std::int64_t depth = g.depth(a.groups);
    filter = unpack_signs(a.weight.reshape({g.out_c, (depth + 7) / 8}), depth)
                 .view({g.out_c, g.in_c / a.groups, g.kernel_h, g.kernel_w});
  }
  if (a.x.is_cuda()) return cuda_backward(a, filter, bias, sa, sw);
  const at::MemoryFormat layout = a.x.suggest_memory_format();
  at::Tensor xs = a.x.to(at::kFloat);
  if (bias.defined()) xs = xs.add(bias.view({1, -1, 1, 1}));
  xs = xs.contiguous(layout);
  filter = sign_values(filter.contiguous(layout), unit_scale);  // as the convolution wants it

  at::Tensor signs = sign_values(xs, unit_scale);
  Movement move = movement(a);
  const bool rim = has_rim(a.padding_value, a.padding);
  if (rim) {
    signs = padded(signs, a.padding);
    move.padding = no_padding;
  }
  auto [up, grad_w] = convolution_grads(a.g, signs, filter, move, /*want_x=*/true, a.weight_grad.has_value());
  if (rim) up = up.narrow(2, a.padding[0], a.x.size(2)).narrow(3, a.padding[1], a.x.size(3));
  up = up.contiguous(layout);

  Grads grads;
  std::get<2>(grads) = sign_backward_({up, sw}, xs, a.scale_a, sa);
  if (bias.defined()) std::get<3>(grads) = up.sum({0, 2, 3}).to(a.bias_a->scalar_type());
  std::get<0>(grads) = up.to(a.x.scalar_type());
  if (a.weight_grad) std::get<1>(grads) = weight_grad({grad_w.contiguous(), sa}, *a.weight_grad);
  return grads;
}

struct BinaryConv2d {
  using Args = ConvArgs;
  static constexpr const char* op_name = ops::op_name;

  static at::Tensor call(const Args& a) {
    static const auto op = find_layer_op<BinaryConv2d, Forward::Signature>();
    return op.call(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.stride, a.padding, a.dilation, a.groups,
                   a.padding_value, a.kernel_size, a.anchor, a.panels);
  }

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
  TORCH_CHECK_TYPE(is_packed(weight), op, ": the weight is ", weight.scalar_type(),
                   ", packed signs (uint8) are wanted");
  kernels::Conv2dShape shape = packed_filter_shape(op, weight, signs_a_byte, in_channels, kernel_size, groups);
  shape.pad_code = pad_code(op, padding_value);
  if (runs_on_codes(weight, groups, padding_value)) {
    const Geometry g{shape.out_c, shape.in_c, shape.kernel_h, shape.kernel_w, /*packed=*/true};
    shape.groups = 1;
    shape.pad_code = 0;
    return prepack_conv2d(op, conv2d_tables(kernels::Dtype::s8), dense_codes(weight, g, groups), kernels::Dtype::s8,
                          shape);
  }
  return prepack_conv2d(op, conv2d_tables(kernels::Dtype::bits), weight, kernels::Dtype::bits, shape);
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
