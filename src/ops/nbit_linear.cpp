// q8_linear and q4_linear: checks, shapes, forward and backward (numerics.md sections 5 and 6).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include <algorithm>

#include "bie/kernels/int4_gemm.h"
#include "bie/kernels/int8_gemm.h"
#include "bie/ops.h"
#include "ops/autograd.h"
#include "ops/bridge.h"
#include "ops/nbit_grad.h"

namespace bie::ops {
namespace {

struct Width8 {
  static constexpr const char* op_name = "q8_linear";
  static constexpr const char* schema = "bie::q8_linear";
  static constexpr const char* backward_schema = "bie::q8_linear_backward";
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
  static constexpr const char* backward_schema = "bie::q4_linear_backward";
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

struct Features {
  std::int64_t k;
  bool plain;  ///< a 4-bit weight of one code a byte
};

/// From whichever of x, weight and in_features tells it; a sentence where two of them differ. An anchored int8 weight
/// is plain codes; without an anchor the packed form goes first, which decides only k = 1.
template <class W>
Features check_features(const at::Tensor& x, const at::Tensor& weight, std::optional<std::int64_t> in_features,
                        bool anchored) {
  TORCH_CHECK_VALUE(x.dim() >= 1, W::op_name, ": x is 0-dimensional, at least one axis is wanted");
  TORCH_CHECK_VALUE(weight.dim() == 2, W::op_name, ": the weight is ", weight.sym_sizes(), ", two axes are wanted");
  if (!is_codes(x)) check_float(W::op_name, "x", x);
  if (!is_codes(weight)) check_float(W::op_name, "the weight", weight);
  const c10::SymInt last = x.sym_size(-1);
  const std::int64_t width = weight.sym_size(1).guard_int(__FILE__, __LINE__);
  constexpr std::int64_t per = W::codes_a_byte;
  const auto bytes = [](std::int64_t k) { return (k + per - 1) / per; };
  std::int64_t k = width;
  bool plain = false;
  if (is_codes(weight)) {
    const std::int64_t plain_k = is_codes(x) ? in_features.value_or(width) : last.guard_int(__FILE__, __LINE__);
    k = is_codes(x) ? in_features.value_or(per * width) : plain_k;
    const bool fits_packed = width == bytes(k) && (!is_codes(x) || last == width);
    plain = per > 1 && width == plain_k && (anchored || !fits_packed);
    TORCH_CHECK_VALUE(per == 1 || !anchored || plain || !fits_packed, W::op_name,
                      ": a packed int4 weight cannot be trained");
    if (plain) k = width;
  }
  TORCH_CHECK_VALUE(k > 0 && (!in_features || *in_features == k), W::op_name, ": in_features is ",
                    in_features.value_or(k), ", the tensors have ", k, "; a positive number is wanted");
  const bool packed = is_codes(weight) && !plain;
  const char* label = per == 1 ? "" : " (packed int4)";
  TORCH_CHECK_VALUE(width == (packed ? bytes(k) : k) && last == (is_codes(x) ? bytes(k) : k), W::op_name, ": x is ",
                    x.sym_sizes(), is_codes(x) ? label : "", ", the weight is ", weight.sym_sizes(),
                    packed && !anchored ? label : "");
  return {k, plain};
}

template <class W>
at::Tensor forward_meta(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&, const OptTensor&,
                        const OptTensor&, std::optional<std::int64_t> in_features, double, bool,
                        const OptTensor& anchor, const OptTensor&) {
  check_features<W>(x, weight, in_features, is_there(anchor));
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options().dtype(is_codes(x) ? at::kFloat : x.scalar_type()));
}

template <class W>
at::Tensor forward_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                       const OptTensor& scale_w, const OptTensor& bias_a, std::optional<std::int64_t> in_features,
                       double eps, bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  const char* op = W::op_name;
  const auto [k, plain] = check_features<W>(x, weight, in_features, is_there(anchor));
  const float sa = scale_value(op, "scale_a", scale_a);
  TORCH_CHECK_VALUE(!is_codes(x) || sa != 0, op,
                    ": scale_a is not initialised, which only a float x can do (init_scale_)");
  TORCH_CHECK_VALUE(std::isfinite(eps) && eps > 0, op, ": eps is ", eps, ", a positive number is wanted");
  const at::Tensor bias = float_bias(op, value_or_none(bias_a), k);
  at::Tensor y = forward_meta<W>(x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels);
  // An anchored weight is in training: panels of it would be stale after a step.
  Weight w{weight, is_there(anchor) ? at::Tensor() : value_or_none(panels)};
  at::Tensor used_scale_w = value_or_none(scale_w);
  if (!is_codes(weight)) {
    const WeightCodes quantized = quantize_weight(op, weight, used_scale_w, eps, W::range);
    w = {W::pack(quantized.codes), {}};
    used_scale_w = quantized.scale_w;
  } else if (plain && !w.panels.defined()) {
    check_codes(op, "the weight", weight, W::range);
    w.packed = W::pack(weight);
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

using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;  // x, weight, scale_a, bias_a
using BackwardSignature = Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const OptTensor&, const OptTensor&, double, bool, bool, bool);

template <class W>
Grads backward_cpu(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                   const OptTensor& scale_w, const OptTensor& bias_a, double eps, bool reference_grad, bool plain_codes,
                   bool want_weight) {
  const char* op = W::op_name;
  const GradMode mode = reference_grad ? GradMode::reference : GradMode::exact;
  const bool packed = is_codes(weight) && W::codes_a_byte > 1 && !plain_codes;
  TORCH_CHECK_VALUE(!want_weight || !packed, op, ": a packed int4 weight cannot be trained");
  const std::int64_t k = is_codes(x) ? weight.size(1) * (packed ? W::codes_a_byte : 1) : x.size(-1);
  const WeightCodes w = is_codes(weight) ? WeightCodes{packed ? W::unpack(weight, k) : weight, value_or_none(scale_w)}
                                         : quantize_weight(op, weight, value_or_none(scale_w), eps, W::range);
  const float floor = static_cast<float>(eps);
  const float sa = scale_value(op, "scale_a", scale_a), sw = scale_value(op, "scale_w", w.scale_w);
  const at::Tensor g2 = g.to(at::kFloat).reshape({-1, weight.size(0)});
  Grads grads;
  at::Tensor codes_a;  // float, [m, k]
  if (is_codes(x)) {
    codes_a = W::unpack(x, k).to(at::kFloat).reshape({-1, k});
  } else {
    const at::Tensor bias = value_or_none(bias_a);
    at::Tensor xs = x.to(at::kFloat).reshape({-1, k});
    if (bias.defined()) xs = xs.add(bias.to(at::kFloat));
    const at::Tensor up = at::mm(g2, w.codes.to(at::kFloat).mul_(sw));
    const QuantizerGrad grad = quantizer_backward(xs, up, scale_a, W::range, mode);
    std::get<0>(grads) = grad.xs.view(x.sizes()).to(x.scalar_type());
    std::get<2>(grads) = grad.scale_a;
    if (bias.defined()) std::get<3>(grads) = grad.xs.sum(0).to(bias.scalar_type());
    codes_a = xs.div(std::max(sa, floor)).round_().clamp_(W::range.lo, W::range.hi);
  }
  if (want_weight) {
    at::Tensor grad_w = at::mm(g2.t(), codes_a.mul(sa));
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
                    const OptTensor&, const OptTensor& bias_a, double, bool, bool, bool want_weight) {
  return empty_grads(x, !is_codes(x), weight, scale_a, value_or_none(bias_a), want_weight);
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
    ctx->save_for_backward({x, weight, scale_a, value_or_none(scale_w), value_or_none(bias_a)});
    ctx->saved_data["eps"] = eps;
    ctx->saved_data["reference_grad"] = reference_grad;
    ctx->saved_data["plain_codes"] = check_features<W>(x, weight, in_features, is_there(anchor)).plain;
    // Edges count only defined tensors: x, weight, scale_a, then those of scale_w, bias_a and anchor that are there.
    ctx->saved_data["weight_edge"] =
        weight_edge(W::op_name, x, weight, anchor, 3 + is_there(scale_w) + is_there(bias_a));
    return call<W>(x, weight, scale_a, scale_w, bias_a, in_features, eps, reference_grad, anchor, panels);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_double_backward(W::op_name);
    static const auto op = find_op<BackwardSignature>(W::backward_schema);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const auto [x, w, scale_a, bias] =
        op.call(grads[0], saved[0], weight, saved[2], none_if_undefined(saved[3]), none_if_undefined(saved[4]),
                ctx->saved_data["eps"].toDouble(), ctx->saved_data["reference_grad"].toBool(),
                ctx->saved_data["plain_codes"].toBool(), wants_weight(ctx));
    return {x, weight_grad(weight, w), scale_a, {}, bias, {}, {}, {}, {}, {}};
  }
};

template <class W>
at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                            const OptTensor& scale_w, const OptTensor& bias_a, std::optional<std::int64_t> in_features,
                            double eps, bool reference_grad, const OptTensor& anchor, const OptTensor& panels) {
  if (needs_graph({x, weight, scale_a, value_or_none(bias_a), value_or_none(anchor)}))
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
  m.impl("q8_linear_backward", bie::ops::backward_cpu<bie::ops::Width8>);
  m.impl("q4_linear", bie::ops::forward_cpu<bie::ops::Width4>);
  m.impl("q4_linear_backward", bie::ops::backward_cpu<bie::ops::Width4>);
  m.impl("q8_prepack", bie::ops::q8_prepack_cpu);
  m.impl("q4_prepack", bie::ops::q4_prepack_cpu);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("q8_linear", bie::ops::forward_meta<bie::ops::Width8>);
  m.impl("q8_linear_backward", bie::ops::backward_meta<bie::ops::Width8>);
  m.impl("q4_linear", bie::ops::forward_meta<bie::ops::Width4>);
  m.impl("q4_linear_backward", bie::ops::backward_meta<bie::ops::Width4>);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  m.impl("q8_linear", bie::ops::forward_autograd<bie::ops::Width8>);
  m.impl("q4_linear", bie::ops::forward_autograd<bie::ops::Width4>);
}
