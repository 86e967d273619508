// q8_conv2d and q4_conv2d: checks, shapes, forward and backward (numerics.md section 7).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>

#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/ops.h"
#include "ops/autograd.h"
#include "ops/bridge.h"
#include "ops/nbit_grad.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_conv2d";
  static constexpr const char* schema = "bie::q8_conv2d";
  static constexpr const char* backward_schema = "bie::q8_conv2d_backward";
  static constexpr const CodeRange& range = q8_range;
  static constexpr bool packs = false;
  static kernels::Conv2dTable table() { return kernels::s8xs8_conv2d_table(); }
};

struct Width4 {
  static constexpr const char* op_name = "q4_conv2d";
  static constexpr const char* schema = "bie::q4_conv2d";
  static constexpr const char* backward_schema = "bie::q4_conv2d_backward";
  static constexpr const CodeRange& range = q4_range;
  static constexpr bool packs = true;
  static kernels::Conv2dTable table() { return kernels::s4xs4_conv2d_table(); }
};

using OptPair = at::OptionalIntArrayRef;
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                             const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, OptPair, double, bool,
                             const OptTensor&, const OptTensor&);

bool is_codes(const at::Tensor& t) { return t.scalar_type() == at::kChar; }

struct Geometry {
  std::int64_t out_c, in_c, kernel_h, kernel_w;
  bool packed;  ///< int4 rows, two codes a byte
};

/// What the weight and x say together; a sentence where they disagree. An anchored int8 weight is plain codes; without
/// an anchor the packed form goes first.
template <class W>
Geometry check_geometry(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                        at::IntArrayRef dilation, OptPair kernel_size, bool anchored) {
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
  check_pair("stride", stride, 1);
  check_pair("padding", padding, 0);
  check_pair("dilation", dilation, 1);
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
at::Tensor forward_meta(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&, const OptTensor&,
                        const OptTensor&, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                        OptPair kernel_size, double, bool, const OptTensor& anchor, const OptTensor&) {
  const Geometry g = check_geometry<W>(x, weight, stride, padding, dilation, kernel_size, is_there(anchor));
  const c10::SymInt h = out_size(W::op_name, x.sym_size(2), g.kernel_h, stride[0], padding[0], dilation[0]);
  const c10::SymInt w = out_size(W::op_name, x.sym_size(3), g.kernel_w, stride[1], padding[1], dilation[1]);
  return at::empty_symint({x.sym_size(0), g.out_c, h, w}, x.options().dtype(is_codes(x) ? at::kFloat : x.scalar_type()),
                          x.suggest_memory_format());
}

template <class W>
at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                       const OptTensor& scale_w, const OptTensor& bias_a, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, OptPair kernel_size, double eps,
                       bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  const char* op = W::op_name;
  const Geometry g = check_geometry<W>(x, weight, stride, padding, dilation, kernel_size, is_there(anchor));
  const float sa = scale_value(op, "scale_a", scale_a);
  TORCH_CHECK_VALUE(!is_codes(x) || sa != 0, op,
                    ": scale_a is not initialised, which only a float x can do (init_scale_)");
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps > 0, op, ": eps is ", eps, ", a positive number is wanted");
  if (is_codes(x)) check_codes(op, "x", x, W::range);
  const at::Tensor bias = float_bias(op, value_or_none(bias_a), g.in_c);
  at::Tensor y = forward_meta<W>(x, weight, scale_a, scale_w, bias_a, stride, padding, dilation, kernel_size, eps,
                                 reference_grad, anchor, panels);
  // An anchored weight is in training: panels of it would be stale after a step.
  Weight w{weight, is_there(anchor) ? at::Tensor() : value_or_none(panels)};
  at::Tensor used_scale_w = value_or_none(scale_w);
  if (!is_codes(weight)) {
    const WeightCodes quantized = quantize_weight(op, weight, used_scale_w, eps, W::range);
    w = {W::packs ? pack_int4(quantized.codes.view({g.out_c, -1})) : quantized.codes, {}};
    used_scale_w = quantized.scale_w;
  } else if (W::packs && !g.packed && !w.panels.defined()) {
    check_codes(op, "the weight", weight, W::range);
    w.packed = pack_int4(weight.reshape({g.out_c, -1}));
  }
  const float sw = scale_value(op, "scale_w", used_scale_w);
  if (y.numel() == 0) return y;
  if (!w.panels.defined()) w.packed = w.packed.contiguous();
  const at::Tensor dense = x.contiguous(x.suggest_memory_format());
  const kernels::ImageLayout layout = dense.suggest_memory_format() == at::MemoryFormat::ChannelsLast
                                          ? kernels::ImageLayout::nhwc
                                          : kernels::ImageLayout::nchw;
  const kernels::Conv2dShape shape{x.size(0), g.in_c,    x.size(2),  x.size(3),  g.out_c,     g.kernel_h, g.kernel_w,
                                   stride[0], stride[1], padding[0], padding[1], dilation[0], dilation[1]};
  run_conv2d(op, W::table(), shape,
             {dense.const_data_ptr(), kernel_dtype(op, "x", x), layout,
              bias.defined() ? bias.const_data_ptr<float>() : nullptr, std::max(sa, static_cast<float>(eps))},
             w, sa * sw, y);
  return y;
}

template <class W>
at::Tensor call(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const OptTensor& scale_w,
                const OptTensor& bias_a, at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                OptPair kernel_size, double eps, bool reference_grad, const OptTensor& anchor,
                const OptTensor& panels) {
  static const auto op = find_op<Signature>(W::schema);
  return op.call(x, weight, scale_a, scale_w, bias_a, stride, padding, dilation, kernel_size, eps, reference_grad,
                 anchor, panels);
}

using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // x, weight, scale_a, bias_a
using BackwardSignature = Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const OptTensor&, const OptTensor&, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                                at::IntArrayRef, double, bool, bool);

template <class W>
Grads backward_cpu(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                   const OptTensor& scale_w, const OptTensor& bias_a, at::IntArrayRef stride, at::IntArrayRef padding,
                   at::IntArrayRef dilation, at::IntArrayRef kernel_size, double eps, bool reference_grad,
                   bool want_weight) {
  const char* op = W::op_name;
  const GradMode mode = reference_grad ? GradMode::reference : GradMode::exact;
  const std::int64_t out_c = weight.size(0), in_c = x.size(1), kh = kernel_size[0], kw = kernel_size[1];
  const bool packed = W::packs && is_codes(weight) && weight.sizes() != at::IntArrayRef({out_c, in_c, kh, kw});
  TORCH_CHECK_VALUE(!want_weight || !packed, op, ": a packed int4 weight cannot be trained");
  WeightCodes w{weight, value_or_none(scale_w)};
  if (!is_codes(weight))
    w = quantize_weight(op, weight, w.scale_w, eps, W::range);
  else if (packed)
    w.codes = unpack_int4(weight.reshape({out_c, -1}), in_c * kh * kw).view({out_c, in_c, kh, kw});
  const float floor = static_cast<float>(eps);
  const float sa = scale_value(op, "scale_a", scale_a), sw = scale_value(op, "scale_w", w.scale_w);
  const at::Tensor bias = value_or_none(bias_a);
  const bool want_x = !is_codes(x);
  at::Tensor xs = x.to(at::kFloat);
  at::Tensor codes_a = xs;
  if (want_x) {
    if (bias.defined()) xs = xs.add(bias.to(at::kFloat).view({1, -1, 1, 1}));
    codes_a = xs.div(std::max(sa, floor)).round_().clamp_(W::range.lo, W::range.hi);
  }
  auto [up, grad_w, grad_bias] = at::convolution_backward(
      g.to(at::kFloat), codes_a.mul(sa), w.codes.to(at::kFloat).mul_(sw), at::OptionalIntArrayRef(), stride, padding,
      dilation, /*transposed=*/false, at::IntArrayRef{0, 0}, /*groups=*/1, {want_x, want_weight, false});
  Grads grads;
  if (want_x) {
    const QuantizerGrad grad = quantizer_backward(xs, up, scale_a, W::range, mode);
    std::get<0>(grads) = grad.xs.to(x.scalar_type());
    std::get<2>(grads) = grad.scale_a;
    if (bias.defined()) std::get<3>(grads) = grad.xs.sum({0, 2, 3}).to(bias.scalar_type());
  }
  if (want_weight) {
    if (!is_codes(weight)) {
      if (mode == GradMode::exact) grad_w = mask_clipped(grad_w, weight, std::max(sw, floor), W::range);
      grad_w = grad_w.to(weight.scalar_type());
    }
    std::get<1>(grads) = grad_w;
  }
  return grads;
}

template <class W>
Grads backward_meta(const at::Tensor&, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                    const OptTensor&, const OptTensor& bias_a, at::IntArrayRef, at::IntArrayRef, at::IntArrayRef,
                    at::IntArrayRef, double, bool, bool want_weight) {
  return empty_grads(x, !is_codes(x), weight, scale_a, value_or_none(bias_a), want_weight);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What a backward pass needs besides tensors.
struct Attributes {
  std::vector<std::int64_t> stride, padding, dilation, kernel_size;
  double eps;
  bool reference_grad;
};

/// Gradients of (x, weight, scale_a, scale_w, bias_a, attributes, anchor, panels).
template <class W>
struct NbitConv2d : torch::autograd::Function<NbitConv2d<W>> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& scale_a, const OptTensor& scale_w, const OptTensor& bias_a,
                            const Attributes& a, const OptTensor& anchor, const OptTensor& panels) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({x, weight, scale_a, value_or_none(scale_w), value_or_none(bias_a)});
    ctx->saved_data["eps"] = a.eps;
    ctx->saved_data["reference_grad"] = a.reference_grad;
    ctx->saved_data["stride"] = a.stride;
    ctx->saved_data["padding"] = a.padding;
    ctx->saved_data["dilation"] = a.dilation;
    ctx->saved_data["kernel_size"] = a.kernel_size;
    // Edges count only defined tensors: x, weight, scale_a, then those of scale_w, bias_a and anchor that are there.
    ctx->saved_data["weight_edge"] =
        weight_edge(W::op_name, x, weight, anchor, 3 + is_there(scale_w) + is_there(bias_a));
    return call<W>(x, weight, scale_a, scale_w, bias_a, a.stride, a.padding, a.dilation, at::IntArrayRef(a.kernel_size),
                   a.eps, a.reference_grad, anchor, panels);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_double_backward(W::op_name);
    static const auto op = find_op<BackwardSignature>(W::backward_schema);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const auto [x, w, scale_a, bias] =
        op.call(grads[0], saved[0], weight, saved[2], none_if_undefined(saved[3]), none_if_undefined(saved[4]),
                ctx->saved_data["stride"].toIntVector(), ctx->saved_data["padding"].toIntVector(),
                ctx->saved_data["dilation"].toIntVector(), ctx->saved_data["kernel_size"].toIntVector(),
                ctx->saved_data["eps"].toDouble(), ctx->saved_data["reference_grad"].toBool(), wants_weight(ctx));
    return {x, weight_grad(weight, w), scale_a, {}, bias, {}, {}, {}};
  }
};

template <class W>
at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                            const OptTensor& scale_w, const OptTensor& bias_a, at::IntArrayRef stride,
                            at::IntArrayRef padding, at::IntArrayRef dilation, OptPair kernel_size, double eps,
                            bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  if (needs_graph({x, weight, scale_a, value_or_none(bias_a), value_or_none(anchor)})) {
    const Geometry g = check_geometry<W>(x, weight, stride, padding, dilation, kernel_size, is_there(anchor));
    const Attributes attributes{stride.vec(), padding.vec(), dilation.vec(), {g.kernel_h, g.kernel_w},
                                eps,          reference_grad};
    return NbitConv2d<W>::apply(x, weight, scale_a, scale_w, bias_a, attributes, anchor, panels);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return call<W>(x, weight, scale_a, scale_w, bias_a, stride, padding, dilation, kernel_size, eps, reference_grad,
                 anchor, panels);
}

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
  return call<W>(x, weight, scale_a, none_if_undefined(scale_w), none_if_undefined(bias_a), o.stride, o.padding,
                 o.dilation, o.kernel_size ? OptPair(at::IntArrayRef(*o.kernel_size)) : OptPair(), o.eps,
                 o.grad_mode == GradMode::reference, none_if_undefined(o.anchor), none_if_undefined(o.panels));
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
  m.impl("q8_conv2d", bie::ops::forward_cpu<bie::ops::Width8>);
  m.impl("q8_conv2d_backward", bie::ops::backward_cpu<bie::ops::Width8>);
  m.impl("q4_conv2d", bie::ops::forward_cpu<bie::ops::Width4>);
  m.impl("q4_conv2d_backward", bie::ops::backward_cpu<bie::ops::Width4>);
  m.impl("q8_conv2d_prepack", bie::ops::q8_prepack_cpu);
  m.impl("q4_conv2d_prepack", bie::ops::q4_prepack_cpu);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_conv2d", bie::ops::forward_meta<bie::ops::Width8>);
  m.impl("q8_conv2d_backward", bie::ops::backward_meta<bie::ops::Width8>);
  m.impl("q4_conv2d", bie::ops::forward_meta<bie::ops::Width4>);
  m.impl("q4_conv2d_backward", bie::ops::backward_meta<bie::ops::Width4>);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  m.impl("q8_conv2d", bie::ops::forward_autograd<bie::ops::Width8>);
  m.impl("q4_conv2d", bie::ops::forward_autograd<bie::ops::Width4>);
}
