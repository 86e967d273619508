// q8_conv2d and q4_conv2d: checks, shapes, forward and backward (numerics.md section 7).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "bie/kernels/int4_conv2d.h"
#include "bie/kernels/int8_conv2d.h"
#include "bie/ops.h"
#include "ops/bridge.h"
#include "ops/integer_grad.h"
#include "ops/nbit_grad.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_conv2d";
  static constexpr const char* schema = "bie::q8_conv2d";
  static constexpr const CodeRange& range = q8_range;
  static constexpr bool packs = false;
  static kernels::Conv2dTable table() { return kernels::s8xs8_conv2d_table(); }
};

struct Width4 {
  static constexpr const char* op_name = "q4_conv2d";
  static constexpr const char* schema = "bie::q4_conv2d";
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
};

/// What the weight and x say together; a sentence where they disagree.
template <class W>
Geometry check_geometry(const at::Tensor& x, const at::Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
                        at::IntArrayRef dilation, OptPair kernel_size) {
  const char* op = W::op_name;
  TORCH_CHECK_VALUE(x.dim() == 4, op, ": x is ", x.sym_sizes(), ", [batch, channels, height, width] is wanted");
  if (!is_codes(x)) check_float(op, "x", x);
  if (!is_codes(weight)) check_float(op, "the weight", weight);
  const std::int64_t in_c = x.sym_size(1).expect_int();
  Geometry g{weight.dim() > 0 ? weight.size(0) : 0, in_c, 0, 0};
  const bool packed = W::packs && is_codes(weight);
  if (packed && weight.dim() == 2) {
    TORCH_CHECK_VALUE(kernel_size.has_value() && kernel_size->size() == 2, op,
                      ": a flat packed weight wants kernel_size");
    g.kernel_h = (*kernel_size)[0];
    g.kernel_w = (*kernel_size)[1];
    TORCH_CHECK_VALUE(weight.size(1) == (in_c * g.kernel_h * g.kernel_w + 1) / 2, op, ": the weight is ",
                      weight.sym_sizes(), " (packed int4), ", in_c, " channels and kernel ", *kernel_size, " want [n, ",
                      (in_c * g.kernel_h * g.kernel_w + 1) / 2, "]");
  } else {
    TORCH_CHECK_VALUE(weight.dim() == 4, op, ": the weight is ", weight.sym_sizes(), ", four axes are wanted");
    g.kernel_h = weight.size(packed ? 1 : 2);
    g.kernel_w = weight.size(packed ? 2 : 3);
    TORCH_CHECK_VALUE(packed ? 2 * weight.size(3) == in_c : weight.size(1) == in_c, op, ": x is ", x.sym_sizes(),
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
                        OptPair kernel_size, double, bool, const OptTensor&, const OptTensor&) {
  const Geometry g = check_geometry<W>(x, weight, stride, padding, dilation, kernel_size);
  const c10::SymInt h = out_size(W::op_name, x.sym_size(2), g.kernel_h, stride[0], padding[0], dilation[0]);
  const c10::SymInt w = out_size(W::op_name, x.sym_size(3), g.kernel_w, stride[1], padding[1], dilation[1]);
  return at::empty_symint({x.sym_size(0), g.out_c, h, w}, x.options().dtype(is_codes(x) ? at::kFloat : x.scalar_type()),
                          x.suggest_memory_format());
}

void check_code_range(const char* op, const at::Tensor& x, const CodeRange& range) {
  if (range.lo == -128 || x.numel() == 0) return;
  TORCH_CHECK_VALUE(x.ge(range.lo).logical_and_(x.le(range.hi)).all().item<bool>(), op, ": x holds codes outside [",
                    range.lo, ", ", range.hi, "]");
}

template <class W>
at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                       const OptTensor& scale_w, const OptTensor& bias_a, at::IntArrayRef stride,
                       at::IntArrayRef padding, at::IntArrayRef dilation, OptPair kernel_size, double eps,
                       bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  const char* op = W::op_name;
  const Geometry g = check_geometry<W>(x, weight, stride, padding, dilation, kernel_size);
  const float sa = scale_value(op, "scale_a", scale_a);
  TORCH_CHECK_VALUE(!is_codes(x) || sa != 0, op,
                    ": scale_a is not initialised, which only a float x can do (init_scale_)");
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps > 0, op, ": eps is ", eps, ", a positive number is wanted");
  if (is_codes(x)) check_code_range(op, x, W::range);
  const at::Tensor bias = float_bias(op, value_or_none(bias_a), g.in_c);
  at::Tensor y = forward_meta<W>(x, weight, scale_a, scale_w, bias_a, stride, padding, dilation, kernel_size, eps,
                                 reference_grad, anchor, panels);
  Weight w{weight, value_or_none(panels)};
  at::Tensor used_scale_w = value_or_none(scale_w);
  if (!is_codes(weight)) {
    const WeightCodes quantized = quantize_weight(op, weight, used_scale_w, eps, W::range);
    w = {W::packs ? pack_int4(quantized.codes.view({g.out_c, -1})) : quantized.codes, {}};
    used_scale_w = quantized.scale_w;
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
    const auto has = [](const OptTensor& t) { return t.has_value() && t->defined(); };
    if (has(anchor)) check_anchor(W::op_name, *anchor);
    const OptPair kernel_size = a.kernel_size.empty() ? OptPair() : OptPair(a.kernel_size);
    const Geometry g = check_geometry<W>(x, weight, a.stride, a.padding, a.dilation, kernel_size);
    // Edges count only defined tensors: x, weight, scale_a, then those of scale_w, bias_a and anchor that are there.
    ctx->saved_data["anchor_edge"] = has(anchor) ? std::int64_t{3} + has(scale_w) + has(bias_a) : std::int64_t{-1};
    ctx->saved_data["eps"] = a.eps;
    ctx->saved_data["reference_grad"] = a.reference_grad;
    ctx->saved_data["stride"] = a.stride;
    ctx->saved_data["padding"] = a.padding;
    ctx->saved_data["dilation"] = a.dilation;
    ctx->saved_data["kernel"] = std::vector<std::int64_t>{g.kernel_h, g.kernel_w};
    at::Tensor codes, used_scale_w = value_or_none(scale_w), packed = weight;
    OptTensor used_panels = panels;
    if (!is_codes(weight)) {
      const WeightCodes quantized = quantize_weight(W::op_name, weight, used_scale_w, a.eps, W::range);
      codes = quantized.codes;
      packed = W::packs ? pack_int4(codes.view({g.out_c, -1})) : codes;
      used_scale_w = quantized.scale_w;
      used_panels = std::nullopt;
    }
    ctx->save_for_backward({x, weight, scale_a, used_scale_w, value_or_none(bias_a), codes});
    const std::array<std::int64_t, 2> kernel{g.kernel_h, g.kernel_w};
    return call<W>(x, packed, scale_a, none_if_undefined(used_scale_w), bias_a, a.stride, a.padding, a.dilation,
                   at::IntArrayRef(kernel), a.eps, a.reference_grad, std::nullopt, used_panels);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_double_backward(W::op_name);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale_a = saved[2], &bias = saved[4];
    const float eps = static_cast<float>(ctx->saved_data["eps"].toDouble());
    const GradMode mode = ctx->saved_data["reference_grad"].toBool() ? GradMode::reference : GradMode::exact;
    const auto kernel = ctx->saved_data["kernel"].toIntVector();
    const float sa = scale_value(W::op_name, "scale_a", scale_a);
    const float sw = scale_value(W::op_name, "scale_w", saved[3]);
    const std::int64_t anchor_edge = ctx->saved_data["anchor_edge"].toInt();
    const bool integer_grad =
        anchor_edge >= 0 && is_codes(weight) && ctx->needs_input_grad(static_cast<std::size_t>(anchor_edge));
    const bool float_grad = !is_codes(weight) && ctx->needs_input_grad(1);
    const bool wants_x = !is_codes(x);

    at::Tensor codes_w = saved[5];
    if (!codes_w.defined())
      codes_w = W::packs ? unpack_int4(weight.reshape({weight.size(0), -1}), x.size(1) * kernel[0] * kernel[1])
                               .view({weight.size(0), x.size(1), kernel[0], kernel[1]})
                         : weight;
    at::Tensor xs = x.to(at::kFloat);
    at::Tensor codes_a = xs;
    if (wants_x) {
      if (bias.defined()) xs = xs.add(bias.to(at::kFloat).view({1, -1, 1, 1}));
      codes_a = xs.div(std::max(sa, eps)).round_().clamp_(W::range.lo, W::range.hi);
    }
    auto [up, grad_w, grad_bias] = at::convolution_backward(
        grads[0].to(at::kFloat), codes_a.mul(sa), codes_w.to(at::kFloat).mul_(sw), at::OptionalIntArrayRef(),
        ctx->saved_data["stride"].toIntVector(), ctx->saved_data["padding"].toIntVector(),
        ctx->saved_data["dilation"].toIntVector(), /*transposed=*/false, at::IntArrayRef{0, 0}, /*groups=*/1,
        {wants_x, integer_grad || float_grad, false});

    variable_list result(8);
    if (wants_x) {
      const QuantizerGrad grad = quantizer_backward(xs, up, scale_a, W::range, mode);
      if (ctx->needs_input_grad(0)) result[0] = grad.xs.to(x.scalar_type());
      result[2] = grad.scale_a;
      if (bias.defined()) result[4] = grad.xs.sum({0, 2, 3}).to(bias.scalar_type());
    }
    if (float_grad) {
      if (mode == GradMode::exact) grad_w = mask_clipped(grad_w, weight, std::max(sw, eps), W::range);
      result[1] = grad_w.to(weight.scalar_type());
    } else if (integer_grad) {
      TORCH_CHECK_VALUE(!W::packs, W::op_name, ": a packed int4 weight cannot be trained");
      deliver_integer_grad(weight, grad_w);
    }
    return result;
  }
};

template <class W>
at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                            const OptTensor& scale_w, const OptTensor& bias_a, at::IntArrayRef stride,
                            at::IntArrayRef padding, at::IntArrayRef dilation, OptPair kernel_size, double eps,
                            bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  const auto wants = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  if (at::GradMode::is_enabled() &&
      (wants(x) || wants(weight) || wants(scale_a) || wants(value_or_none(bias_a)) || wants(value_or_none(anchor)))) {
    const Attributes attributes{
        stride.vec(), padding.vec(), dilation.vec(), kernel_size ? kernel_size->vec() : std::vector<std::int64_t>{},
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
  m.impl("q4_conv2d", bie::ops::forward_cpu<bie::ops::Width4>);
  m.impl("q8_conv2d_prepack", bie::ops::q8_prepack_cpu);
  m.impl("q4_conv2d_prepack", bie::ops::q4_prepack_cpu);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_conv2d", bie::ops::forward_meta<bie::ops::Width8>);
  m.impl("q4_conv2d", bie::ops::forward_meta<bie::ops::Width4>);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  m.impl("q8_conv2d", bie::ops::forward_autograd<bie::ops::Width8>);
  m.impl("q4_conv2d", bie::ops::forward_autograd<bie::ops::Width4>);
}
