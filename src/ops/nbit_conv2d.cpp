// q8_conv2d and q4_conv2d: checks, shapes, forward and backward (numerics.md section 7).
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/ops.h"
#include "ops/nbit_layer.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_conv2d";
  static constexpr const CodeRange& range = q8_range;
  static constexpr bool packs = false;
  static kernels::Conv2dTable table() { return kernels::s8xs8_conv2d_table(); }
};

struct Width4 {
  static constexpr const char* op_name = "q4_conv2d";
  static constexpr const CodeRange& range = q4_range;
  static constexpr bool packs = true;
  static kernels::Conv2dTable table() { return kernels::s4xs4_conv2d_table(); }
};

using OptPair = at::OptionalIntArrayRef;

struct ConvArgs {
  at::Tensor x, weight, scale_a;
  OptTensor scale_w, bias_a;
  at::IntArrayRef stride, padding, dilation;
  OptPair kernel_size;
  double eps;
  bool reference_grad;
  OptTensor anchor, panels;
};
using Forward = Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                                  const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, OptPair, double,
                                  bool, const OptTensor&, const OptTensor&),
                       ConvArgs>;

struct ConvBackwardArgs {
  at::Tensor g, x, weight, scale_a;
  OptTensor scale_w, bias_a;
  at::IntArrayRef stride, padding, dilation, kernel_size;
  double eps;
  bool reference_grad, want_weight;
};
using Backward = Kernel<Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const OptTensor&, const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                              at::IntArrayRef, double, bool, bool),
                        ConvBackwardArgs>;

struct Geometry {
  std::int64_t out_c, in_c, kernel_h, kernel_w;
  bool packed;  ///< int4 rows, two codes a byte
};

/// What the weight and x say together; a sentence where they disagree. An anchored int8 weight is plain codes; without
/// an anchor the packed form goes first.
template <class W>
Geometry check_geometry(const ConvArgs& a) {
  const at::Tensor &x = a.x, &weight = a.weight;
  const OptPair kernel_size = a.kernel_size;
  const bool anchored = is_there(a.anchor);
  const char* op = W::op_name;
  TORCH_CHECK_VALUE(x.dim() == 4, op, ": x is ", x.sym_sizes(), ", [batch, channels, height, width] is wanted");
  if (!is_codes(x)) check_float(op, "x", x);
  if (!is_codes(weight)) check_float(op, "the weight", weight);
  const auto size = [](const at::Tensor& t, std::int64_t axis) {
    return t.sym_size(axis).guard_int(__FILE__, __LINE__);
  };
  const std::int64_t in_c = size(x, 1);
  bool packed = W::packs && is_codes(weight);
  if (packed && weight.dim() == 4) {
    const auto is_kernel = [&](int axis) {
      return !kernel_size || (kernel_size->size() == 2 && (*kernel_size)[0] == size(weight, axis) &&
                              (*kernel_size)[1] == size(weight, axis + 1));
    };
    // With kernel_size the labels [o, kh, kw, c/2] and [o, c, kh, kw] never coincide: kh = c, kw = kh, c/2 = kw, so c =
    // 0.
    const bool fits_packed = 2 * size(weight, 3) == in_c && is_kernel(1);
    const bool fits_plain = size(weight, 1) == in_c && is_kernel(2);
    packed = anchored ? fits_packed && !fits_plain : fits_packed || !fits_plain;
  }
  TORCH_CHECK_VALUE(!packed || !anchored, op, ": a packed int4 weight cannot be trained");
  Geometry g{weight.dim() > 0 ? size(weight, 0) : 0, in_c, 0, 0, packed};
  if (packed && weight.dim() == 2) {
    TORCH_CHECK_VALUE(kernel_size.has_value() && kernel_size->size() == 2, op,
                      ": a flat packed weight wants kernel_size");
    g.kernel_h = (*kernel_size)[0];
    g.kernel_w = (*kernel_size)[1];
    TORCH_CHECK_VALUE(size(weight, 1) == (in_c * g.kernel_h * g.kernel_w + 1) / 2, op, ": the weight is ",
                      weight.sym_sizes(), " (packed int4), ", in_c, " channels and kernel ", *kernel_size, " want [n, ",
                      (in_c * g.kernel_h * g.kernel_w + 1) / 2, "]");
  } else {
    TORCH_CHECK_VALUE(weight.dim() == 4, op, ": the weight is ", weight.sym_sizes(), ", four axes are wanted");
    g.kernel_h = size(weight, packed ? 1 : 2);
    g.kernel_w = size(weight, packed ? 2 : 3);
    TORCH_CHECK_VALUE(packed ? 2 * size(weight, 3) == in_c : size(weight, 1) == in_c, op, ": x is ", x.sym_sizes(),
                      ", the weight is ", weight.sym_sizes(), packed ? " (packed int4)" : "");
    TORCH_CHECK_VALUE(!kernel_size || (kernel_size->size() == 2 && (*kernel_size)[0] == g.kernel_h &&
                                       (*kernel_size)[1] == g.kernel_w),
                      op, ": kernel_size is ", kernel_size ? *kernel_size : at::IntArrayRef{}, ", the weight is ",
                      weight.sym_sizes());
  }
  TORCH_CHECK_VALUE(in_c > 0 && g.kernel_h > 0 && g.kernel_w > 0, op, ": the weight is ", weight.sym_sizes(),
                    ", at least one channel and tap are wanted");
  const auto check_pair = [&](const char* name, at::IntArrayRef pair, std::int64_t least) {
    TORCH_CHECK_VALUE(pair.size() == 2 && pair[0] >= least && pair[1] >= least, op, ": ", name, " is ", pair,
                      ", two numbers >= ", least, " are wanted");
  };
  check_pair("stride", a.stride, 1);
  check_pair("padding", a.padding, 0);
  check_pair("dilation", a.dilation, 1);
  return g;
}

c10::SymInt out_size(const char* op, const c10::SymInt& in, std::int64_t kernel, std::int64_t stride,
                     std::int64_t padding, std::int64_t dilation) {
  const c10::SymInt room = in + 2 * padding - dilation * (kernel - 1) - 1;
  TORCH_CHECK_VALUE(room >= 0, op, ": a kernel of ", kernel, " (dilation ", dilation, ") does not fit an image of ", in,
                    " with padding ", padding);
  return room / stride + 1;
}

template <class W>
at::Tensor forward_meta(const ConvArgs& a) {
  const Geometry g = check_geometry<W>(a);
  const c10::SymInt h = out_size(W::op_name, a.x.sym_size(2), g.kernel_h, a.stride[0], a.padding[0], a.dilation[0]);
  const c10::SymInt w = out_size(W::op_name, a.x.sym_size(3), g.kernel_w, a.stride[1], a.padding[1], a.dilation[1]);
  return at::empty_symint({a.x.sym_size(0), g.out_c, h, w},
                          a.x.options().dtype(is_codes(a.x) ? at::kFloat : a.x.scalar_type()),
                          a.x.suggest_memory_format());
}

template <class W>
at::Tensor forward_cpu(const ConvArgs& a) {
  const char* op = W::op_name;
  const Geometry g = check_geometry<W>(a);
  if (is_codes(a.x)) check_codes(op, "x", a.x, W::range);
  const Operands o = operands<W>(a, g.in_c, W::packs && !g.packed);
  at::Tensor y = forward_meta<W>(a);
  if (y.numel() == 0) return y;
  const at::Tensor x = a.x.contiguous(a.x.suggest_memory_format());
  const kernels::ImageLayout layout = x.suggest_memory_format() == at::MemoryFormat::ChannelsLast
                                          ? kernels::ImageLayout::nhwc
                                          : kernels::ImageLayout::nchw;
  const kernels::Conv2dShape shape{x.size(0),    g.in_c,        x.size(2),    x.size(3),   g.out_c,
                                   g.kernel_h,   g.kernel_w,    a.stride[0],  a.stride[1], a.padding[0],
                                   a.padding[1], a.dilation[0], a.dilation[1]};
  run_conv2d(op, W::table(), shape,
             {x.const_data_ptr(), kernel_dtype(op, "x", x), layout,
              o.bias.defined() ? o.bias.const_data_ptr<float>() : nullptr, o.step},
             o.weight, o.scale, y);
  return y;
}

template <class W>
Grads backward_cpu(const ConvBackwardArgs& a) {
  const std::int64_t out_c = a.weight.size(0), in_c = a.x.size(1), kh = a.kernel_size[0], kw = a.kernel_size[1];
  at::Tensor codes = a.weight;
  if (W::packs && is_codes(a.weight) && a.weight.sizes() != at::IntArrayRef({out_c, in_c, kh, kw})) {
    TORCH_CHECK_VALUE(!a.want_weight, W::op_name, ": a packed int4 weight cannot be trained");
    codes = unpack_int4(a.weight.reshape({out_c, -1}), in_c * kh * kw).view({out_c, in_c, kh, kw});
  }
  const float sa = scale_value(W::op_name, "scale_a", a.scale_a);
  const WeightValues<W, ConvBackwardArgs> w(a);
  const bool want_x = !is_codes(a.x);
  const at::MemoryFormat layout = a.x.suggest_memory_format();
  at::Tensor xs, values;
  if (want_x) {
    xs = a.x.to(at::kFloat);
    if (is_there(a.bias_a)) xs = xs.add(a.bias_a->to(at::kFloat).view({1, -1, 1, 1}));
    xs = xs.contiguous(layout);
    values = quantized_values(xs, std::max(sa, static_cast<float>(a.eps)), sa, W::range);
  } else {
    values = code_values(a.x, sa);
  }
  const auto [up, grad_w, grad_bias] = at::convolution_backward(
      a.g.to(at::kFloat), values, w.values(codes), at::OptionalIntArrayRef(), a.stride, a.padding, a.dilation,
      /*transposed=*/false, at::IntArrayRef{0, 0}, /*groups=*/1, {want_x, a.want_weight, false});
  Grads grads;
  if (want_x) finish_input_grads<W>(grads, a, xs, up.contiguous(layout), {0, 2, 3});
  if (a.want_weight) std::get<1>(grads) = w.grad(grad_w);
  return grads;
}

template <class W>
struct Conv2d {
  using Args = ConvArgs;
  static constexpr const char* op_name = W::op_name;

  static at::Tensor call(const Args& a) {
    static const auto op = find_layer_op<W, Forward::Signature>();
    return op.call(a.x, a.weight, a.scale_a, a.scale_w, a.bias_a, a.stride, a.padding, a.dilation, a.kernel_size, a.eps,
                   a.reference_grad, a.anchor, a.panels);
  }

  static void save(SavedData& to, const Args& a) {
    const Geometry g = check_geometry<W>(a);
    to["stride"] = a.stride.vec();
    to["padding"] = a.padding.vec();
    to["dilation"] = a.dilation.vec();
    to["kernel_size"] = std::vector<std::int64_t>{g.kernel_h, g.kernel_w};
    to["eps"] = a.eps;
    to["reference_grad"] = a.reference_grad;
  }

  static Grads call_backward(SavedData& from, const at::Tensor& g, const torch::autograd::variable_list& saved,
                             bool want_weight) {
    static const auto op = find_layer_op<W, Backward::Signature>("_backward");
    return op.call(g, saved[0], saved[1], saved[2], none_if_undefined(saved[3]), none_if_undefined(saved[4]),
                   from["stride"].toIntVector(), from["padding"].toIntVector(), from["dilation"].toIntVector(),
                   from["kernel_size"].toIntVector(), from["eps"].toDouble(), from["reference_grad"].toBool(),
                   want_weight);
  }
};

at::Tensor q8_prepack_cpu(const at::Tensor& weight) {
  const char* op = "q8_conv2d_prepack";
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight is ", weight.scalar_type(), ", int8 is wanted");
  TORCH_CHECK_VALUE(weight.dim() == 4 && weight.numel() > 0, op, ": the weight is ", weight.sizes(),
                    ", four axes, none empty, are wanted");
  const kernels::Conv2dShape shape{1, weight.size(1), 1, 1, weight.size(0), weight.size(2), weight.size(3)};
  return prepack_conv2d(op, kernels::s8xs8_conv2d_table(), weight, shape);
}

at::Tensor q4_prepack_cpu(const at::Tensor& weight, std::int64_t in_channels, at::IntArrayRef kernel_size) {
  const char* op = "q4_conv2d_prepack";
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight is ", weight.scalar_type(), ", packed int4 (int8) is wanted");
  TORCH_CHECK_VALUE(in_channels > 0 && kernel_size.size() == 2 && kernel_size[0] > 0 && kernel_size[1] > 0 &&
                        weight.dim() >= 2 && weight.numel() > 0,
                    op, ": the weight is ", weight.sizes(), ", in_channels is ", in_channels, ", kernel_size is ",
                    kernel_size);
  const kernels::Conv2dShape shape{1, in_channels, 1, 1, weight.size(0), kernel_size[0], kernel_size[1]};
  TORCH_CHECK_VALUE(weight.numel() == weight.size(0) * ((shape.depth() + 1) / 2), op, ": the weight is ",
                    weight.sizes(), ", ", in_channels, " channels and kernel ", kernel_size, " want rows of ",
                    (shape.depth() + 1) / 2, " bytes");
  return prepack_conv2d(op, kernels::s4xs4_conv2d_table(), weight, shape);
}

template <class W>
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                  const at::Tensor& bias_a, const QConv2dOptions& o) {
  return Conv2d<W>::call({x, weight, scale_a, none_if_undefined(scale_w), none_if_undefined(bias_a), o.stride,
                          o.padding, o.dilation, o.kernel_size ? OptPair(at::IntArrayRef(*o.kernel_size)) : OptPair(),
                          o.eps, o.grad_mode == GradMode::reference, none_if_undefined(o.anchor),
                          none_if_undefined(o.panels)});
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

at::Tensor q8_conv2d_prepack(const at::Tensor& weight) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::q8_conv2d_prepack");
  return op.call(weight);
}

at::Tensor q4_conv2d_prepack(const at::Tensor& weight, std::int64_t in_channels,
                             std::array<std::int64_t, 2> kernel_size) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, std::int64_t, at::IntArrayRef)>("bie::q4_conv2d_prepack");
  return op.call(weight, in_channels, kernel_size);
}

}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CPU, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_cpu<Width8>>);
  m.impl("q8_conv2d_backward", Backward::of<backward_cpu<Width8>>);
  m.impl("q4_conv2d", Forward::of<forward_cpu<Width4>>);
  m.impl("q4_conv2d_backward", Backward::of<backward_cpu<Width4>>);
  m.impl("q8_conv2d_prepack", q8_prepack_cpu);
  m.impl("q4_conv2d_prepack", q4_prepack_cpu);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_meta<Width8>>);
  m.impl("q8_conv2d_backward", Backward::of<backward_meta<ConvBackwardArgs>>);
  m.impl("q4_conv2d", Forward::of<forward_meta<Width4>>);
  m.impl("q4_conv2d_backward", Backward::of<backward_meta<ConvBackwardArgs>>);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("q8_conv2d", Forward::of<forward_autograd<Conv2d<Width8>>>);
  m.impl("q4_conv2d", Forward::of<forward_autograd<Conv2d<Width4>>>);
}
