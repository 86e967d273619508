// Training epilogue of a product: checks and autograd (docs/spec/nets.md).
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>
#include <string>
#include <string_view>
#include <tuple>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/training_tails.h"
#include "ops/checks.h"
#include "ops/layer/autograd.h"
#include "ops/layer/function.h"
#include "ops/registration.h"
#include "ops/tail/tail_arguments.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "training_tail";
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using FiveGrads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

struct TailArgs {
  at::Tensor x;
  OptTensor weight, bias, running_mean, running_var, shortcut, slope;
  double momentum, eps;
  std::string_view activation;
  std::int64_t pool;
};
using Forward =
    Kernel<Results(const at::Tensor&, const OptTensor&, const OptTensor&, const OptTensor&, const OptTensor&,
                   const OptTensor&, const OptTensor&, double, double, std::string_view, std::int64_t),
           TailArgs>;

struct TailBackwardArgs {
  at::Tensor g, x, mean, rstd;
  OptTensor weight, bias, shortcut, slope;
  std::string_view activation;
  std::int64_t pool;
  bool want_shortcut;
};
using Backward =
    Kernel<FiveGrads(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const OptTensor&,
                     const OptTensor&, const OptTensor&, const OptTensor&, std::string_view, std::int64_t, bool),
           TailBackwardArgs>;

template <class Args>
TrainingTailInput input_of(const Args& a) {
  return {a.x,
          value_or_none(a.weight),
          value_or_none(a.bias),
          value_or_none(a.shortcut),
          activation_of(op_name, a.activation, a.slope),
          a.pool};
}

void check_input(const TrainingTailInput& in) {
  check_float(op_name, "x", in.x);
  check_tail_input(op_name, in.x);
  check_channels(op_name, "weight", in.weight, in.x);
  check_channels(op_name, "bias", in.bias, in.x);
  if (in.shortcut.defined()) {
    TORCH_CHECK_TYPE(in.shortcut.scalar_type() == in.x.scalar_type(), op_name, ": shortcut is ",
                     in.shortcut.scalar_type(), ", x is ", in.x.scalar_type());
    TORCH_CHECK_VALUE(in.shortcut.sym_sizes() == in.x.sym_sizes(), op_name, ": shortcut is ", in.shortcut.sym_sizes(),
                      ", x is ", in.x.sym_sizes());
  }
  check_activation(op_name, in.act);
  check_pool(op_name, in.x, in.pool);
  const c10::SymInt rows = in.x.dim() == 2 ? in.x.sym_size(0) : in.x.sym_size(0) * in.x.sym_size(2) * in.x.sym_size(3);
  TORCH_CHECK_VALUE(rows > 1, op_name, ": x: expected more than one element a channel for its variance, got ",
                    in.x.sym_sizes());
}

TrainingTailInput checked(const TailArgs& a) {
  TrainingTailInput in = input_of(a);
  check_input(in);
  const at::Tensor mean = value_or_none(a.running_mean), var = value_or_none(a.running_var);
  TORCH_CHECK_VALUE(mean.defined() == var.defined(), op_name,
                    ": running_mean and running_var belong together, one is missing");
  check_channels(op_name, "running_mean", mean, a.x);
  check_channels(op_name, "running_var", var, a.x);
  check_norm_eps(op_name, a.eps);
  TORCH_CHECK_VALUE(std::isfinite(a.momentum), op_name, ": momentum: expected a finite number, got ", a.momentum);
  check_one_device(op_name, {a.x, in.weight, in.bias, mean, var, in.shortcut, in.act.slope});
  return in;
}

at::Tensor empty_statistic(const at::Tensor& x) {
  return at::empty_symint({x.sym_size(1)}, x.options().dtype(at::kFloat).requires_grad(false));
}

Results forward_meta(const TailArgs& a) {
  check_meta(op_name, "x", a.x);
  checked(a);
  return {empty_tail(a.x, a.pool), empty_statistic(a.x), empty_statistic(a.x)};
}

Results forward(const TailArgs& a) {
  const TrainingTailInput in = checked(a);
  const at::Tensor y = empty_tail(a.x, a.pool);
  const BatchStatistics batch{empty_statistic(a.x), empty_statistic(a.x)};
  const RunningStatistics running{value_or_none(a.running_mean), value_or_none(a.running_var), a.momentum};
  if (y.numel() == 0) return {y, batch.mean, batch.rstd};
  backend_of(op_name, a.x).training_tails.run(op_name, in, a.eps, running, y, batch);
  for (const at::Tensor& statistic : {running.mean, running.var})
    if (statistic.defined()) bump_version(statistic);
  return {y, batch.mean, batch.rstd};
}

TrainingTailInput checked_backward(const TailBackwardArgs& a) {
  TrainingTailInput in = input_of(a);
  check_input(in);
  check_float(op_name, "g", a.g);
  check_channels(op_name, "mean", a.mean, a.x);
  check_channels(op_name, "rstd", a.rstd, a.x);
  TORCH_CHECK_VALUE(!a.want_shortcut || in.shortcut.defined(), op_name,
                    ": expected a shortcut for its gradient, got none");
  c10::SymDimVector sizes(a.x.sym_sizes());
  if (a.pool > 1) sizes[2] = sizes[2] / a.pool, sizes[3] = sizes[3] / a.pool;
  TORCH_CHECK_VALUE(a.g.sym_sizes() == c10::SymIntArrayRef(sizes), op_name, ": g is ", a.g.sym_sizes(), ", x is ",
                    a.x.sym_sizes(), ", for which g is ", sizes);
  check_one_device(op_name, {a.x, a.g, a.mean, a.rstd, in.weight, in.bias, in.shortcut, in.act.slope});
  return in;
}

FiveGrads backward_meta(const TailBackwardArgs& a) {
  check_meta(op_name, "x", a.x);
  const TrainingTailInput in = checked_backward(a);
  const auto like = [](const at::Tensor& t) { return t.defined() ? at::empty_like(t) : at::Tensor(); };
  return {at::empty_like(a.x), like(in.weight), like(in.bias), a.want_shortcut ? like(in.shortcut) : at::Tensor(),
          like(in.act.slope)};
}

FiveGrads backward(const TailBackwardArgs& a) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const TrainingTailInput in = checked_backward(a);
  TrainingTailGrads grads =
      backend_of(op_name, a.x)
          .training_tails.grads(op_name, a.g, in, {a.mean.contiguous(), a.rstd.contiguous()}, a.want_shortcut);
  return {grads.x, grads.weight, grads.bias, grads.shortcut, grads.slope};
}

Results call(const TailArgs& a) {
  static const auto op = find_op<Forward::Signature>("bie::training_tail");
  return op.call(a.x, a.weight, a.bias, a.running_mean, a.running_var, a.shortcut, a.slope, a.momentum, a.eps,
                 a.activation, a.pool);
}

struct TailFunction : torch::autograd::Function<TailFunction> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                                                const OptTensor& weight, const OptTensor& bias,
                                                const OptTensor& shortcut, const OptTensor& slope, const TailArgs& a) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, mean, rstd] = call(a);
    ctx->save_for_backward(
        {x, mean, rstd, value_or_none(weight), value_or_none(bias), value_or_none(shortcut), value_or_none(slope)});
    ctx->saved_data["activation"] = std::string(a.activation);
    ctx->saved_data["pool"] = a.pool;
    // Edges count only defined tensors.
    const std::int64_t edge = 1 + is_there(weight) + is_there(bias);
    ctx->saved_data["shortcut_edge"] = is_there(shortcut) ? edge : std::int64_t{-1};
    ctx->mark_non_differentiable({mean, rstd});
    return {y, mean, rstd};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    refuse_double_backward(op_name);
    static const auto op = find_op<Backward::Signature>("bie::training_tail_backward");
    const torch::autograd::variable_list saved = ctx->get_saved_variables();
    const std::int64_t edge = ctx->saved_data.at("shortcut_edge").toInt();
    const std::string activation = ctx->saved_data.at("activation").toStringRef();
    const auto [x, weight, bias, shortcut, slope] =
        op.call(grads[0], saved[0], saved[1], saved[2], none_if_undefined(saved[3]), none_if_undefined(saved[4]),
                none_if_undefined(saved[5]), none_if_undefined(saved[6]), activation,
                ctx->saved_data.at("pool").toInt(), edge >= 0 && ctx->needs_input_grad(static_cast<std::size_t>(edge)));
    return {x, weight, bias, shortcut, slope, {}};
  }
};

Results forward_autograd(const TailArgs& a) {
  if (needs_graph(op_name, {a.x, value_or_none(a.weight), value_or_none(a.bias), value_or_none(a.shortcut),
                            value_or_none(a.slope)})) {
    const auto results = TailFunction::apply(a.x, a.weight, a.bias, a.shortcut, a.slope, a);
    return {results[0], results[1], results[2]};
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(a);
}

}  // namespace

at::Tensor training_tail(const at::Tensor& x, const NormNumbers& norm, double momentum, const at::Tensor& shortcut,
                         const TailActivation& act, std::int64_t pool) {
  return std::get<0>(call({x, none_if_undefined(norm.weight), none_if_undefined(norm.bias),
                           none_if_undefined(norm.mean), none_if_undefined(norm.var), none_if_undefined(shortcut),
                           none_if_undefined(act.slope), momentum, norm.eps, activation_names[act.kind], pool}));
}

bool has_training_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                       const TailActivation& act, std::int64_t pool) {
  if ((x.dim() != 2 && x.dim() != 4) || !is_float_type(x.scalar_type())) return false;
  for (const at::Tensor& t : {norm.mean, norm.var, norm.weight, norm.bias, act.slope})
    if (t.defined() && (t.device() != x.device() || t.scalar_type() != at::kFloat || !t.is_contiguous())) return false;
  if (shortcut.defined() && (shortcut.device() != x.device() || shortcut.sizes() != x.sizes())) return false;
  if (act.slope.defined() && act.slope.numel() != 1) return false;
  if (x.numel() <= x.size(1)) return false;
  return backend_of(op_name, x).training_tails.has_kernels({x, norm.weight, norm.bias, shortcut, act, pool});
}

}  // namespace bie::ops

BIE_OPERATORS(m) {
  using namespace bie::ops;
  m.impl("training_tail", Forward::of<forward>);
  m.impl("training_tail_backward", Backward::of<backward>);
}

TORCH_LIBRARY_IMPL(bie, Meta, m) {
  using namespace bie::ops;
  m.impl("training_tail", Forward::of<forward_meta>);
  m.impl("training_tail_backward", Backward::of<backward_meta>);
}

TORCH_LIBRARY_IMPL(bie, Autograd, m) {
  using namespace bie::ops;
  m.impl("training_tail", Forward::of<forward_autograd>);
}
