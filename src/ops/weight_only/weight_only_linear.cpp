// weight_only_linear: checks, shapes, forward and backward (docs/spec/weight-only.md).
#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

#include "bie/kernels/weight_only_q8.h"
#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/layer/function.h"
#include "ops/registration.h"
#include "ops/weight_only/coded_weight.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "weight_only_linear";
using OptInts = at::OptionalIntArrayRef;

struct LinearArgs {
  at::Tensor x, qweight, scales;
  OptTensor zeros, bias;
  std::int64_t bits, group_size;
  OptTensor g_idx, q_perm;
  OptInts bit_rows;
  OptTensor channel_scale, anchor, panels;
  bool int8_activations;

  WeightArgs weight() const { return {qweight, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows}; }
};
using Forward = Kernel<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                                  const OptTensor&, std::int64_t, std::int64_t, const OptTensor&, const OptTensor&,
                                  OptInts, const OptTensor&, const OptTensor&, const OptTensor&, bool),
                       LinearArgs>;

struct BackwardArgs {
  at::Tensor g, x, qweight, scales;
  OptTensor zeros;
  std::int64_t bits, group_size;
  OptTensor g_idx, q_perm;
  OptInts bit_rows;
  OptTensor channel_scale;
  bool want_x, want_weight;

  WeightArgs weight() const { return {qweight, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows}; }
};
using TwoGrads = std::tuple<at::Tensor, at::Tensor>;
using Backward = Kernel<TwoGrads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const OptTensor&, std::int64_t, std::int64_t, const OptTensor&, const OptTensor&,
                                 OptInts, const OptTensor&, bool, bool),
                        BackwardArgs>;

std::int64_t check_x(const at::Tensor& x, const OptTensor& channel_scale) {
  check_float(op_name, "x", x);
  TORCH_CHECK_VALUE(x.dim() >= 1, op_name, ": x: expected at least one axis, got a 0-dimensional tensor");
  const std::int64_t k = fixed_size(x, -1);
  if (channel_scale.has_value()) {
    check_float(op_name, "channel_scale", *channel_scale);
    TORCH_CHECK_VALUE(channel_scale->sym_numel() == k, op_name, ": channel_scale is ", channel_scale->sym_sizes(),
                      ", x is ", x.sym_sizes());
  }
  return k;
}

/// k, once everything fits.
std::int64_t check(const LinearArgs& a) {
  const std::int64_t k = check_x(a.x, a.channel_scale);
  check_weight_args(op_name, a.weight(), k);
  const c10::SymInt n = a.qweight.sym_size(1);
  if (a.bias.has_value()) {
    check_float(op_name, "bias", *a.bias);
    TORCH_CHECK_VALUE(a.bias->dim() == 1 && a.bias->sym_size(0) == n, op_name, ": bias: expected [", n, "], got ",
                      a.bias->sym_sizes());
  }
  if (is_there(a.anchor)) {
    check_float(op_name, "anchor", *a.anchor);
    TORCH_CHECK_VALUE(a.anchor->dim() == 2 && a.anchor->sym_size(0) == k && a.anchor->sym_size(1) == n, op_name,
                      ": anchor: expected [", k, ", ", n, "], got ", a.anchor->sym_sizes());
  }
  return k;
}

c10::SymDimVector output_sizes(const at::Tensor& x, const at::Tensor& qweight) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = qweight.sym_size(1);
  return sizes;
}

at::Tensor forward_meta(const LinearArgs& a) {
  check_meta(op_name, "x", a.x);
  check(a);
  return at::empty_symint(output_sizes(a.x, a.qweight), a.x.options());
}

at::Tensor float_row(const OptTensor& t) {
  return t.has_value() ? t->to(at::kFloat).reshape({-1}).contiguous() : at::Tensor();
}

/// Limits the rows per group for int8 activations, whose products are added in int32.
void check_group_rows(const char* op, const CodedWeight& w) {
  if (w.k <= kernels::most_q8_rows || !w.group_of.defined()) return;
  const std::int64_t most = at::bincount(w.group_of).max().item<std::int64_t>();
  TORCH_CHECK_VALUE(most <= kernels::most_q8_rows, op, ": a group has ", most, " rows, at most ", kernels::most_q8_rows,
                    " are taken with int8_activations");
}

at::Tensor forward(const LinearArgs& a) {
  const std::int64_t k = check(a);
  const at::Tensor panels = value_or_none(a.panels), bias = float_row(a.bias), factor = float_row(a.channel_scale);
  check_one_device(op_name, {a.x, a.qweight, bias, factor, panels});
  const WeightOnly& backend = backend_of(op_name, a.x).weight_only;
  at::Tensor y = at::empty_symint(output_sizes(a.x, a.qweight), a.x.options());
  Rows rows = rows_of(a.x);
  const bool reads = !panels.defined() || backend.reads_weight(rows, factor, a.int8_activations);
  CodedWeight w = coded_weight(op_name, a.weight(), k, /*looks=*/reads);
  const bool current = panels.defined() && backend.are_current(op_name, panels, w, a.int8_activations);
  if (!reads && !current) w = coded_weight(op_name, a.weight(), k);
  if (a.int8_activations && !current) check_group_rows(op_name, w);
  if (y.numel() == 0) return y;
  if (k == 0) rows.count = y.numel() / w.n;
  backend.linear(op_name, rows, factor, w, current ? panels : at::Tensor(), bias, a.int8_activations, y);
  return y;
}

std::int64_t check_backward(const BackwardArgs& a) {
  const std::int64_t k = check_x(a.x, a.channel_scale);
  check_weight_args(op_name, a.weight(), k);
  check_float(op_name, "g", a.g);
  const c10::SymDimVector sizes = output_sizes(a.x, a.qweight);
  TORCH_CHECK_VALUE(a.g.sym_sizes() == c10::SymIntArrayRef(sizes), op_name, ": g is ", a.g.sym_sizes(), ", x is ",
                    a.x.sym_sizes(), ", qweight is ", a.qweight.sym_sizes());
  return k;
}

TwoGrads backward_meta(const BackwardArgs& a) {
  check_meta(op_name, "x", a.x);
  const std::int64_t k = check_backward(a);
  TwoGrads grads;
  if (a.want_x) std::get<0>(grads) = at::empty_symint(a.x.sym_sizes(), a.x.options());
  if (a.want_weight) std::get<1>(grads) = at::empty_symint({k, a.qweight.sym_size(1)}, a.x.options().dtype(at::kFloat));
  return grads;
}

TwoGrads backward(const BackwardArgs& a) {
  const at::AutoDispatchBelowADInplaceOrView below;  // products with a dtype of their own have no derivative
  const std::int64_t k = check_backward(a), n = a.qweight.size(1);
  const std::int64_t m = n > 0 ? a.g.numel() / n : k > 0 ? a.x.numel() / k : 0;
  const at::Tensor factor = float_row(a.channel_scale);
  check_one_device(op_name, {a.g, a.x, a.qweight, factor});
  const WeightOnly& backend = backend_of(op_name, a.x).weight_only;
  const at::ScalarType dtype = factor.defined() ? at::kFloat : backend.gradient_dtype(a.x.scalar_type());
  const at::Tensor g = a.g.to(dtype).reshape({m, n});
  TwoGrads grads;
  if (a.want_x) {
    const CodedWeight w = coded_weight(op_name, a.weight(), k);
    at::Tensor up = at::mm(g, backend.open(op_name, w, dtype).t());
    if (factor.defined()) up.mul_(factor);
    std::get<0>(grads) = up.to(a.x.scalar_type()).view(a.x.sizes());
  }
  if (a.want_weight) {
    at::Tensor x = a.x.to(dtype).reshape({m, k});
    if (factor.defined()) x = x * factor;
    std::get<1>(grads) = dtype == at::kFloat ? at::mm(x.t(), g) : at::mm(x.t(), g, at::kFloat);
  }
  return grads;
}

at::Tensor call(const LinearArgs& a) {
  static const auto op = find_op<Forward::Signature>("bie::weight_only_linear");
  return op.call(a.x, a.qweight, a.scales, a.zeros, a.bias, a.bits, a.group_size, a.g_idx, a.q_perm, a.bit_rows,
                 a.channel_scale, a.anchor, a.panels, a.int8_activations);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  /// x, bias and anchor are passed a second time, because autograd makes edges for direct arguments only.
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const OptTensor& bias,
                            const OptTensor& anchor, const LinearArgs& a) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({x, a.qweight, a.scales, value_or_none(a.zeros), value_or_none(a.g_idx),
                            value_or_none(a.q_perm), value_or_none(a.channel_scale)});
    ctx->saved_data["bits"] = a.bits;
    ctx->saved_data["group_size"] = a.group_size;
    if (a.bit_rows.has_value()) ctx->saved_data["bit_rows"] = a.bit_rows->vec();
    // Edges count only defined tensors.
    ctx->saved_data["bias_edge"] = std::int64_t{is_there(bias) ? 1 : -1};
    ctx->saved_data["anchor_edge"] = std::int64_t{is_there(anchor) ? 1 + is_there(bias) : -1};
    if (is_there(anchor)) ctx->saved_data["anchor_dtype"] = static_cast<std::int64_t>(anchor->scalar_type());
    if (is_there(bias)) ctx->saved_data["bias_dtype"] = static_cast<std::int64_t>(bias->scalar_type());
    return call(a);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    refuse_double_backward(op_name);
    static const auto op = find_op<Backward::Signature>("bie::weight_only_linear_backward");
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const auto wanted = [&](const char* edge) {
      const std::int64_t at = ctx->saved_data.at(edge).toInt();
      return at >= 0 && ctx->needs_input_grad(static_cast<std::size_t>(at));
    };
    const auto dtype = [&](const char* name) { return static_cast<at::ScalarType>(ctx->saved_data.at(name).toInt()); };
    std::vector<std::int64_t> bit_rows;
    if (const auto it = ctx->saved_data.find("bit_rows"); it != ctx->saved_data.end())
      bit_rows = it->second.toIntVector();
    const bool want_x = ctx->needs_input_grad(0), want_weight = wanted("anchor_edge");
    auto [x, weight] =
        op.call(grads[0], saved[0], saved[1], saved[2], none_if_undefined(saved[3]), ctx->saved_data.at("bits").toInt(),
                ctx->saved_data.at("group_size").toInt(), none_if_undefined(saved[4]), none_if_undefined(saved[5]),
                bit_rows_of(bit_rows), none_if_undefined(saved[6]), want_x, want_weight);
    at::Tensor bias;
    if (wanted("bias_edge"))
      bias = grads[0].reshape_symint({-1, grads[0].sym_size(-1)}).sum(0, false, at::kFloat).to(dtype("bias_dtype"));
    if (want_weight) weight = weight.to(dtype("anchor_dtype"));
    return {want_x ? x : at::Tensor(), bias, want_weight ? weight : at::Tensor(), {}};
  }
};

at::Tensor forward_autograd(const LinearArgs& a) {
  if (needs_graph(op_name, {a.x, value_or_none(a.bias), value_or_none(a.anchor)})) {
    check(a);
    return LinearFunction::apply(a.x, a.bias, a.anchor, a);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(a);
}

at::Tensor prepack_any(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros,
                       std::int64_t in_features, std::int64_t bits, std::int64_t group_size, const OptTensor& g_idx,
                       const OptTensor& q_perm, OptInts bit_rows, bool int8_activations) {
  const char* op = "weight_only_prepack";
  TORCH_CHECK_VALUE(in_features >= 0, op, ": in_features: expected a number >= 0, got ", in_features);
  const CodedWeight w =
      coded_weight(op, {qweight, scales, zeros, bits, group_size, g_idx, q_perm, bit_rows}, in_features);
  if (int8_activations) check_group_rows(op, w);
  return backend_of(op, qweight).weight_only.prepack(op, w, int8_activations);
}

at::Tensor prepack_meta(const at::Tensor& qweight, const at::Tensor& scales, const OptTensor& zeros,
                        std::int64_t in_features, std::int64_t bits, std::int64_t group_size, const OptTensor& g_idx,
                        const OptTensor& q_perm, OptInts bit_rows, bool int8_activations) {
  check_meta("weight_only_prepack", "qweight", qweight);
  return prepack_any(qweight, scales, zeros, in_features, bits, group_size, g_idx, q_perm, bit_rows, int8_activations);
}

}  // namespace

at::Tensor weight_only_linear(const at::Tensor& x, const CodedWeightTensors& w, const at::Tensor& bias,
                              const WeightOnlyLinearOptions& o) {
  return call({x, w.qweight, w.scales, none_if_undefined(w.zeros), none_if_undefined(bias), w.bits, w.group_size,
               none_if_undefined(w.g_idx), none_if_undefined(w.q_perm), bit_rows_of(w.bit_rows),
               none_if_undefined(o.channel_scale), none_if_undefined(o.anchor), none_if_undefined(o.panels),
               o.int8_activations});
}

at::Tensor weight_only_prepack(const CodedWeightTensors& w, std::int64_t in_features, bool int8_activations) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, const OptTensor&, std::int64_t, std::int64_t,
                         std::int64_t, const OptTensor&, const OptTensor&, OptInts, bool)>("bie::weight_only_prepack");
  return op.call(w.qweight, w.scales, none_if_undefined(w.zeros), in_features, w.bits, w.group_size,
                 none_if_undefined(w.g_idx), none_if_undefined(w.q_perm), bit_rows_of(w.bit_rows), int8_activations);
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("weight_only_linear", Forward::of<forward>);
  m.impl("weight_only_linear_backward", Backward::of<backward>);
  m.impl("weight_only_prepack", prepack_any);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("weight_only_linear", Forward::of<forward_meta>);
  m.impl("weight_only_linear_backward", Backward::of<backward_meta>);
  m.impl("weight_only_prepack", prepack_meta);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("weight_only_linear", Forward::of<forward_autograd>);
}
