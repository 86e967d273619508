// q8_linear and q4_linear: checks, shapes, forward and backward (numerics.md sections 5 and 6).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"
#include "bie/ops.h"
#include "ops/bridge.h"
#include "ops/integer_grad.h"
#include "ops/nbit_grad.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_linear";
  static constexpr const char* schema = "bie::q8_linear";
  static constexpr const CodeRange& range = q8_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s8;
  static constexpr std::int64_t codes_a_byte = 1;
  static kernels::GemmTable table() { return kernels::s8xs8_gemm_table(); }
  static at::Tensor pack(const at::Tensor& codes) { return codes; }
  static at::Tensor unpack(const at::Tensor& packed, std::int64_t) { return packed; }
};

struct Width4 {
  static constexpr const char* op_name = "q4_linear";
  static constexpr const char* schema = "bie::q4_linear";
  static constexpr const CodeRange& range = q4_range;
  static constexpr kernels::Dtype code = kernels::Dtype::s4;
  static constexpr std::int64_t codes_a_byte = 2;
  static kernels::GemmTable table() { return kernels::s4xs4_gemm_table(); }
  static at::Tensor pack(const at::Tensor& codes) { return pack_int4(codes); }
  static at::Tensor unpack(const at::Tensor& packed, std::int64_t k) { return unpack_int4(packed, k); }
};

using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                             const OptTensor&, std::optional<std::int64_t>, double, bool, const OptTensor&,
                             const OptTensor&);

bool is_codes(const at::Tensor& t) { return t.scalar_type() == at::kChar; }

/// k, from whichever of x, weight and in_features tells it; a sentence where two of them differ.
template <class W>
std::int64_t check_features(const at::Tensor& x, const at::Tensor& weight, std::optional<std::int64_t> in_features) {
  TORCH_CHECK_VALUE(x.dim() >= 1, W::op_name, ": x is 0-dimensional, at least one axis is wanted");
  TORCH_CHECK_VALUE(weight.dim() == 2, W::op_name, ": the weight is ", weight.sym_sizes(), ", two axes are wanted");
  if (!is_codes(x)) check_float(W::op_name, "x", x);
  if (!is_codes(weight)) check_float(W::op_name, "the weight", weight);
  const c10::SymInt last = x.sym_size(-1);
  const std::int64_t width = weight.size(1), per = W::codes_a_byte;
  std::int64_t k = 0;
  if (!is_codes(weight)) {
    k = width;
  } else if (!is_codes(x)) {
    k = last.expect_int();
  } else {
    k = in_features.value_or(per * width);
  }
  TORCH_CHECK_VALUE(k > 0 && (!in_features || *in_features == k), W::op_name, ": in_features is ",
                    in_features.value_or(k), ", the tensors have ", k, "; a positive number is wanted");
  const std::int64_t packed = (k + per - 1) / per;
  const char* label = per == 1 ? "" : " (packed int4)";
  TORCH_CHECK_VALUE(width == (is_codes(weight) ? packed : k) && last == (is_codes(x) ? packed : k), W::op_name,
                    ": x is ", x.sym_sizes(), is_codes(x) ? label : "", ", the weight is ", weight.sym_sizes(),
                    is_codes(weight) ? label : "");
  return k;
}

template <class W>
at::Tensor forward_meta(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&, const OptTensor&,
                        const OptTensor&, std::optional<std::int64_t> in_features, double, bool, const OptTensor&,
                        const OptTensor&) {
  check_features<W>(x, weight, in_features);
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options().dtype(is_codes(x) ? at::kFloat : x.scalar_type()));
}

template <class W>
at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                       const OptTensor& scale_w, const OptTensor& bias_a, std::optional<std::int64_t> in_features,
                       double eps, bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  const char* op = W::op_name;
  const std::int64_t k = check_features<W>(x, weight, in_features);
  const float sa = scale_value(op, "scale_a", scale_a);
  TORCH_CHECK_VALUE(!is_codes(x) || sa != 0, op,
                    ": scale_a is not initialised, which only a float x can do (init_scale_)");
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps > 0, op, ": eps is ", eps, ", a positive number is wanted");
  const at::Tensor bias = float_bias(op, value_or_none(bias_a), k);
  at::Tensor y = forward_meta<W>(x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels);
  Weight w{weight, value_or_none(panels)};
  at::Tensor used_scale_w = value_or_none(scale_w);
  if (!is_codes(weight)) {
    const WeightCodes quantized = quantize_weight(op, weight, used_scale_w, eps, W::range);
    w = {W::pack(quantized.codes), {}};
    used_scale_w = quantized.scale_w;
  }
  const float sw = scale_value(op, "scale_w", used_scale_w);
  if (y.numel() == 0) return y;
  if (!w.panels.defined()) w.packed = w.packed.contiguous();
  const Rows rows = rows_of(x);
  run_gemm(op, W::table(), {rows.count, weight.size(0), k},
           {rows.data.const_data_ptr(), is_codes(x) ? W::code : kernel_dtype(op, "x", x), rows.stride,
            bias.defined() ? bias.const_data_ptr<float>() : nullptr, std::max(sa, static_cast<float>(eps))},
           w, sa * sw, y);
  return y;
}

template <class W>
at::Tensor call(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const OptTensor& scale_w,
                const OptTensor& bias_a, std::optional<std::int64_t> in_features, double eps, bool reference_grad,
                const OptTensor& anchor, const OptTensor& panels) {
  static const auto op = find_op<Signature>(W::schema);
  return op.call(x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Gradients of (x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels).
template <class W>
struct NbitLinear : torch::autograd::Function<NbitLinear<W>> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& scale_a, const OptTensor& scale_w, const OptTensor& bias_a,
                            const std::optional<std::int64_t>& in_features, double eps, bool reference_grad,
                            const OptTensor& anchor, const OptTensor& panels) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto has = [](const OptTensor& t) { return t.has_value() && t->defined(); };
    if (has(anchor)) check_anchor(W::op_name, *anchor);
    const std::int64_t k = check_features<W>(x, weight, in_features);
    // Edges count only defined tensors: x, weight, scale_a, then those of scale_w, bias_a and anchor that are there.
    ctx->saved_data["anchor_edge"] = has(anchor) ? std::int64_t{3} + has(scale_w) + has(bias_a) : std::int64_t{-1};
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["reference_grad"] = reference_grad;
    at::Tensor codes, used_scale_w = value_or_none(scale_w), packed = weight;
    OptTensor used_panels = panels;
    if (!is_codes(weight)) {
      const WeightCodes quantized = quantize_weight(W::op_name, weight, used_scale_w, eps, W::range);
      codes = quantized.codes;
      packed = W::pack(codes);
      used_scale_w = quantized.scale_w;
      used_panels = std::nullopt;
    }
    ctx->save_for_backward({x, weight, scale_a, used_scale_w, value_or_none(bias_a), codes});
    ctx->saved_data["k"] = k;
    return call<W>(x, packed, scale_a, none_if_undefined(used_scale_w), bias_a, k, eps, reference_grad, std::nullopt,
                   used_panels);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_double_backward(W::op_name);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scale_a = saved[2], &bias = saved[4];
    const float eps = static_cast<float>(ctx->saved_data["eps"].toDouble());
    const GradMode mode = ctx->saved_data["reference_grad"].toBool() ? GradMode::reference : GradMode::exact;
    const std::int64_t k = ctx->saved_data["k"].toInt(), n = weight.size(0);
    const float sa = scale_value(W::op_name, "scale_a", scale_a);
    const float sw = scale_value(W::op_name, "scale_w", saved[3]);
    const std::int64_t anchor_edge = ctx->saved_data["anchor_edge"].toInt();
    const bool integer_grad =
        anchor_edge >= 0 && is_codes(weight) && ctx->needs_input_grad(static_cast<std::size_t>(anchor_edge));
    const bool float_grad = !is_codes(weight) && ctx->needs_input_grad(1);

    variable_list result(10);
    const at::Tensor g = grads[0].to(at::kFloat).reshape({-1, n});
    at::Tensor codes_a;  // float, [m, k]
    if (is_codes(x)) {
      codes_a = W::unpack(x, k).to(at::kFloat).reshape({-1, k});
    } else {
      at::Tensor xs = x.to(at::kFloat).reshape({-1, k});
      if (bias.defined()) xs = xs.add(bias.to(at::kFloat));
      const at::Tensor codes_w = saved[5].defined() ? saved[5] : W::unpack(weight, k);
      const at::Tensor up = at::mm(g, codes_w.to(at::kFloat).mul_(sw));
      const QuantizerGrad grad = quantizer_backward(xs, up, scale_a, W::range, mode);
      if (ctx->needs_input_grad(0)) result[0] = grad.xs.view(x.sizes()).to(x.scalar_type());
      result[2] = grad.scale_a;
      if (bias.defined()) result[4] = grad.xs.sum(0).to(bias.scalar_type());
      codes_a = xs.div_(std::max(sa, eps)).round_().clamp_(W::range.lo, W::range.hi);
    }
    if (integer_grad || float_grad) {
      at::Tensor grad_w = at::mm(g.t(), codes_a.mul_(sa));
      if (float_grad) {
        if (mode == GradMode::exact) grad_w = mask_clipped(grad_w, weight, std::max(sw, eps), W::range);
        result[1] = grad_w.to(weight.scalar_type());
      } else {
        deliver_integer_grad(weight, grad_w);
      }
    }
    return result;
  }
};

template <class W>
at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                            const OptTensor& scale_w, const OptTensor& bias_a, std::optional<std::int64_t> in_features,
                            double eps, bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  const auto wants = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  if (at::GradMode::is_enabled() &&
      (wants(x) || wants(weight) || wants(scale_a) || wants(value_or_none(bias_a)) || wants(value_or_none(anchor))))
    return NbitLinear<W>::apply(x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call<W>(x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels);
}

void check_prepack(const char* op, const at::Tensor& weight) {
  TORCH_CHECK_TYPE(is_codes(weight), op, ": the weight is ", weight.scalar_type(), ", int8 is wanted");
  TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(1) > 0, op, ": the weight is ", weight.sizes(),
                    ", two axes and at least one input feature are wanted");
}

at::Tensor q8_prepack_cpu(const at::Tensor& weight) {
  check_prepack("q8_prepack", weight);
  return prepack_gemm("q8_prepack", kernels::s8xs8_gemm_table(), weight, weight.size(0), weight.size(1));
}

at::Tensor q4_prepack_cpu(const at::Tensor& weight, std::int64_t in_features) {
  check_prepack("q4_prepack", weight);
  TORCH_CHECK_VALUE(weight.size(1) == (in_features + 1) / 2, "q4_prepack: the weight is ", weight.sizes(),
                    ", in_features = ", in_features, " wants [n, ", (in_features + 1) / 2, "]");
  return prepack_gemm("q4_prepack", kernels::s4xs4_gemm_table(), weight, weight.size(0), in_features);
}

template <class W>
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                  const at::Tensor& bias_a, const QLinearOptions& o) {
  return call<W>(x, weight, scale_a, none_if_undefined(scale_w), none_if_undefined(bias_a), o.in_features, o.eps,
                 o.grad_mode == GradMode::reference, none_if_undefined(o.anchor), none_if_undefined(o.panels));
}

}  // namespace

at::Tensor q8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QLinearOptions& options) {
  return linear<Width8>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q4_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                     const at::Tensor& scale_w, const at::Tensor& bias_a, const QLinearOptions& options) {
  return linear<Width4>(x, weight, scale_a, scale_w, bias_a, options);
}

at::Tensor q8_prepack(const at::Tensor& weight) {
  static const auto op = find_op<at::Tensor(const at::Tensor&)>("bie::q8_prepack");
  return op.call(weight);
}

at::Tensor q4_prepack(const at::Tensor& weight, std::int64_t in_features) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t)>("bie::q4_prepack");
  return op.call(weight, in_features);
}

}  // namespace bie::ops

TORCH_LIBRARY_IMPL(bie, CPU, m) {
  m.impl("q8_linear", bie::ops::forward_cpu<bie::ops::Width8>);
  m.impl("q4_linear", bie::ops::forward_cpu<bie::ops::Width4>);
  m.impl("q8_prepack", bie::ops::q8_prepack_cpu);
  m.impl("q4_prepack", bie::ops::q4_prepack_cpu);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_linear", bie::ops::forward_meta<bie::ops::Width8>);
  m.impl("q4_linear", bie::ops::forward_meta<bie::ops::Width4>);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  m.impl("q8_linear", bie::ops::forward_autograd<bie::ops::Width8>);
  m.impl("q4_linear", bie::ops::forward_autograd<bie::ops::Width4>);
}
