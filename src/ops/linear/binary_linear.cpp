// binary_linear: checks, shapes, forward and backward (docs/spec/binary-linear.md).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/products.h"
#include "ops/gradient/sign_grad.h"
#include "ops/layer/autograd.h"
#include "ops/registration.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "binary_linear";

using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                             const OptTensor&, std::optional<std::int64_t>, const OptTensor&, const OptTensor&,
                             std::int64_t);

const Products& products_of(const at::Tensor& t) { return backend_of(op_name, t).products; }

bool is_packed(const at::Tensor& t) { return t.scalar_type() == at::kByte; }

/// k, from whichever of x, weight and in_features tells it; throws where two of them differ.
std::int64_t check_features(const at::Tensor& x, const at::Tensor& weight, std::optional<std::int64_t> in_features) {
  TORCH_CHECK_VALUE(x.dim() >= 1, op_name, ": x: expected at least one axis, got a 0-dimensional tensor");
  TORCH_CHECK_VALUE(weight.dim() == 2, op_name, ": the weight: expected two axes, got ", weight.sym_sizes());
  if (!is_packed(x)) check_float(op_name, "x", x);
  if (!is_packed(weight) && weight.scalar_type() != at::kChar) check_float(op_name, "the weight", weight);
  const c10::SymInt last = x.sym_size(-1);
  const std::int64_t width = fixed_size(weight, 1);
  std::int64_t k = 0;
  if (!is_packed(weight)) {
    k = width;
  } else if (!is_packed(x)) {
    k = fixed_size(x, -1);
  } else {
    k = in_features.value_or(8 * width);
  }
  TORCH_CHECK_VALUE(k > 0 && (!in_features || *in_features == k), op_name,
                    ": in_features: expected a positive number, ", k, " by the tensors, got ", in_features.value_or(k));
  TORCH_CHECK_VALUE(width == (is_packed(weight) ? (k + 7) / 8 : k) && last == (is_packed(x) ? (k + 7) / 8 : k), op_name,
                    ": x is ", x.sym_sizes(), is_packed(x) ? " (packed signs)" : "", ", the weight is ",
                    weight.sym_sizes(), is_packed(weight) ? " (packed signs)" : "");
  return k;
}

c10::SymDimVector output_sizes(const at::Tensor& x, const at::Tensor& weight) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return sizes;
}

at::Tensor empty_output(const at::Tensor& x, const at::Tensor& weight) {
  return at::empty_symint(output_sizes(x, weight), x.options().dtype(is_packed(x) ? at::kFloat : x.scalar_type()));
}

at::Tensor forward_meta(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&, const at::Tensor&,
                        const OptTensor&, std::optional<std::int64_t> in_features, const OptTensor&, const OptTensor&,
                        std::int64_t) {
  check_meta(op_name, "x", x);
  check_features(x, weight, in_features);
  return empty_output(x, weight);
}

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                   const OptTensor& bias_a, std::optional<std::int64_t> in_features, const OptTensor&,
                   const OptTensor& panels, std::int64_t kernel_id) {
  const std::int64_t k = check_features(x, weight, in_features);
  const at::Device device = x.device();
  const Quantiser q{float_bias(op_name, value_or_none(bias_a), k), scale_of(op_name, "scale_a", scale_a, device),
                    scale_of(op_name, "scale_w", scale_w, device)};
  if (is_packed(x)) backend_of(op_name, x).quantizers.check_scale_of_codes(op_name, q.scale_a);
  at::Tensor y = empty_output(x, weight);
  if (y.numel() == 0) return y;
  Weight w;
  if (is_packed(weight)) w.panels = products_of(x).panels_of(weight, value_or_none(panels));
  check_one_device(op_name, {x, weight, q.bias, w.panels});
  if (!w.panels.defined())
    w = is_packed(weight) ? Weight{weight.contiguous(), kernels::Dtype::bits, {}, 1, {}}
                          : products_of(x).signs(op_name, weight);
  const Rows rows = rows_of(x);
  products_of(x).gemm(op_name, kernels::Dtype::bits, {rows.count, weight.size(0), k}, rows,
                      is_packed(x) ? kernels::Dtype::bits : kernel_dtype(op_name, "x", x), q, w, y, kernel_id);
  return y;
}

at::Tensor call(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a, const at::Tensor& scale_w,
                const OptTensor& bias_a, std::optional<std::int64_t> in_features, const OptTensor& anchor,
                const OptTensor& panels, std::int64_t kernel_id) {
  static const auto op = find_op<Signature>("bie::binary_linear");
  return op.call(x, weight, scale_a, scale_w, bias_a, in_features, anchor, panels, kernel_id);
}

/// A tensor whose signs count: `k` elements per row if t is packed.
at::Tensor unpacked(const at::Tensor& t, std::int64_t k) { return is_packed(t) ? unpack_signs(t, k) : t; }

using BackwardSignature = Grads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, const OptTensor&, std::optional<at::ScalarType>);

/// k, once g, x and the weight are proved to fit.
std::int64_t check_backward(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight,
                            std::optional<at::ScalarType> want_grad) {
  const std::int64_t k = check_features(x, weight, std::nullopt);
  TORCH_CHECK_VALUE(!want_grad || !is_packed(weight), op_name, ": a weight of packed signs cannot be trained");
  check_output_grad(op_name, g, output_sizes(x, weight), x, weight, want_grad);
  return k;
}

Grads backward(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
               const at::Tensor& scale_w, const OptTensor& bias_a, std::optional<at::ScalarType> want_grad) {
  const std::int64_t k = check_backward(g, x, weight, want_grad);
  const Scale sa = scale_of(op_name, "scale_a", scale_a, x.device());
  const Scale sw = scale_of(op_name, "scale_w", scale_w, x.device());
  backend_of(op_name, x).quantizers.check_initialised(op_name, "scale_a", x, sa);
  const at::Tensor bias = float_bias(op_name, value_or_none(bias_a), k);
  check_one_device(op_name, {x, g, weight, bias});
  Grads grads;
  if (is_packed(x) && !want_grad) return grads;
  const auto g2 = products_of(x).output_grad(op_name, g.reshape({x.numel() / x.size(-1), weight.size(0)}));
  at::Tensor operand;  // [m, k]; its signs count
  if (is_packed(x)) {
    operand = unpack_signs(x, k).view({-1, k});
  } else {
    const LinearInput in{x.contiguous(), bias, value_or_none(bias_a), scale_a, sa};
    const InputGrads found =
        g2->input_grads(factor_of_signs(unpacked(weight, k)), sw, in, sign_rule(x), want_grad.has_value());
    grads = {found.x, {}, found.scale_a, found.bias_a};
    operand = found.operand;
  }
  if (want_grad) {
    Factor signs = factor_of_signs(operand);
    signs.codes = [&]() -> Codes { return {operand}; };  // of signs of one byte, +1 and -1
    const Scaled grad = g2->transposed_times(signs, sa);
    std::get<1>(grads) = weight_grad(grad, *want_grad);
  }
  return grads;
}

Grads backward_meta(const at::Tensor& g, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                    const at::Tensor&, const OptTensor& bias_a, std::optional<at::ScalarType> want_grad) {
  check_backward(g, x, weight, want_grad);
  return empty_grads(op_name, x, at::MemoryFormat::Contiguous, !is_packed(x), weight, scale_a, value_or_none(bias_a),
                     want_grad);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Gradients of (x, weight, scale_a, scale_w, bias_a, in_features, anchor, panels, kernel_id).
struct BinaryLinear : torch::autograd::Function<BinaryLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& scale_a, const at::Tensor& scale_w, const OptTensor& bias_a,
                            const std::optional<std::int64_t>& in_features, const OptTensor& anchor,
                            const OptTensor& panels, std::int64_t kernel_id) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({x, weight, scale_a, scale_w, value_or_none(bias_a)});
    // Edges count only defined tensors: x, weight, scale_a, scale_w, then the bias and the anchor if they are there.
    ctx->saved_data["weight_edge"] = weight_edge(op_name, x, weight, anchor, 4 + is_there(bias_a));
    return call(x, weight, scale_a, scale_w, bias_a, in_features, anchor, panels, kernel_id);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    refuse_double_backward(op_name);
    static const auto op = find_op<BackwardSignature>("bie::binary_linear_backward");
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const auto [x, w, scale_a, bias] = op.call(grads[0], saved[0], weight, saved[2], saved[3],
                                               none_if_undefined(saved[4]), wanted_weight_grad(ctx, weight));
    return {x, delivered(weight, w), scale_a, {}, bias, {}, {}, {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                            const at::Tensor& scale_w, const OptTensor& bias_a, std::optional<std::int64_t> in_features,
                            const OptTensor& anchor, const OptTensor& panels, std::int64_t kernel_id) {
  if (needs_graph(op_name, {x, weight, scale_a, value_or_none(bias_a), value_or_none(anchor)}))
    return BinaryLinear::apply(x, weight, scale_a, scale_w, bias_a, in_features, anchor, panels, kernel_id);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(x, weight, scale_a, scale_w, bias_a, in_features, anchor, panels, kernel_id);
}

at::Tensor prepack(const at::Tensor& weight, std::int64_t in_features, std::int64_t kernel_id) {
  const char* op = "binary_prepack";
  TORCH_CHECK_TYPE(is_packed(weight), op, ": the weight: expected packed signs (uint8), got ", weight.scalar_type());
  TORCH_CHECK_VALUE(in_features > 0 && weight.dim() == 2 && weight.sym_size(1) == (in_features + 7) / 8, op,
                    ": the weight is ", weight.sym_sizes(), ", in_features = ", in_features, " wants [n, ",
                    (in_features + 7) / 8, "]");
  return backend_of(op, weight)
      .products.prepack_gemm(op, kernels::Dtype::bits, weight, fixed_size(weight, 0), in_features, kernel_id);
}

}  // namespace

at::Tensor binary_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale_a,
                         const at::Tensor& scale_w, const at::Tensor& bias_a, const BinaryLinearOptions& options) {
  return call(x, weight, scale_a, scale_w, none_if_undefined(bias_a), options.in_features,
              none_if_undefined(options.anchor), none_if_undefined(options.panels), options.kernel_id);
}

at::Tensor binary_prepack(const at::Tensor& weight, std::int64_t in_features, std::int64_t kernel_id) {
  static const auto op = find_op<at::Tensor(const at::Tensor&, std::int64_t, std::int64_t)>("bie::binary_prepack");
  return op.call(weight, in_features, kernel_id);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("binary_linear", bie::ops::forward);
  m.impl("binary_linear_backward", bie::ops::backward);
  m.impl("binary_prepack", bie::ops::prepack);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  m.impl("binary_linear", bie::ops::forward_meta);
  m.impl("binary_linear_backward", bie::ops::backward_meta);
  m.impl("binary_prepack", bie::ops::prepack);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) { m.impl("binary_linear", bie::ops::forward_autograd); }
