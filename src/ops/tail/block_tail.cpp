// Evaluation epilogue of a product: BatchNorm, residual (shortcut), activation, pool.
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <string_view>

#include "bie/ops.h"
#include "ops/backend/backend.h"
#include "ops/backend/block_tails.h"
#include "ops/checks.h"
#include "ops/layer/autograd.h"
#include "ops/registration.h"
#include "ops/tail/tail_arguments.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "block_tail";

/// Arguments of the operator beside x.
struct Tail {
  NormNumbers norm;
  at::Tensor shortcut;
  TailActivation act;
  std::int64_t pool;
};

void check(const at::Tensor& x, const Tail& tail) {
  const NormNumbers& norm = tail.norm;
  check_float32(op_name, "x", x);
  check_tail_input(op_name, x);
  TORCH_CHECK_VALUE(norm.mean.defined() == norm.var.defined(), op_name,
                    ": mean and var belong together, one is missing");
  TORCH_CHECK_VALUE(norm.mean.defined() || !(norm.weight.defined() || norm.bias.defined()), op_name,
                    ": weight and bias want mean and var");
  check_channels(op_name, "mean", norm.mean, x);
  check_channels(op_name, "var", norm.var, x);
  check_channels(op_name, "weight", norm.weight, x);
  check_channels(op_name, "bias", norm.bias, x);
  check_norm_eps(op_name, norm.eps);
  if (tail.shortcut.defined()) {
    check_float32(op_name, "shortcut", tail.shortcut);
    TORCH_CHECK_VALUE(tail.shortcut.sym_sizes() == x.sym_sizes(), op_name, ": shortcut is ", tail.shortcut.sym_sizes(),
                      ", x is ", x.sym_sizes());
  }
  check_activation(op_name, tail.act);
  check_pool(op_name, x, tail.pool);
}

Tail checked(const at::Tensor& x, const OptTensor& mean, const OptTensor& var, const OptTensor& weight,
             const OptTensor& bias, const OptTensor& shortcut, const OptTensor& slope, double eps,
             std::string_view activation, std::int64_t pool) {
  Tail tail{{value_or_none(mean), value_or_none(var), value_or_none(weight), value_or_none(bias), eps},
            value_or_none(shortcut),
            activation_of(op_name, activation, slope),
            pool};
  check(x, tail);
  const NormNumbers& n = tail.norm;
  check_one_device(op_name, {x, n.mean, n.var, n.weight, n.bias, tail.shortcut, tail.act.slope});
  TORCH_CHECK_VALUE(!needs_graph(op_name, {x, n.mean, n.var, n.weight, n.bias, tail.shortcut, tail.act.slope}), op_name,
                    ": has no derivative, it is for evaluation under torch.no_grad()");
  return tail;
}

at::Tensor block_tail_real(const at::Tensor& x, const OptTensor& mean, const OptTensor& var, const OptTensor& weight,
                           const OptTensor& bias, const OptTensor& shortcut, const OptTensor& slope, double eps,
                           std::string_view activation, std::int64_t pool) {
  const Tail tail = checked(x, mean, var, weight, bias, shortcut, slope, eps, activation, pool);
  at::Tensor y = empty_tail(x, tail.pool);
  backend_of(op_name, x).block_tails.run(op_name, x, tail.norm, tail.shortcut, tail.act, tail.pool, y);
  return y;
}

at::Tensor block_tail_meta(const at::Tensor& x, const OptTensor& mean, const OptTensor& var, const OptTensor& weight,
                           const OptTensor& bias, const OptTensor& shortcut, const OptTensor& slope, double eps,
                           std::string_view activation, std::int64_t pool) {
  const Tail tail = checked(x, mean, var, weight, bias, shortcut, slope, eps, activation, pool);
  return empty_tail(x, tail.pool);
}

bool is_dense_float(const at::Tensor& t, at::Device device) {
  return !t.defined() || (t.device() == device && t.scalar_type() == at::kFloat && t.is_contiguous());
}

}  // namespace

bool has_block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                    const TailActivation& act) {
  if (at::GradMode::is_enabled() || x.scalar_type() != at::kFloat) return false;
  if (x.dim() != 2 && x.dim() != 4) return false;
  if (!x.is_contiguous() && !is_channels_last(x)) return false;
  if (!backend_of(op_name, x).block_tails.in_one_pass()) return false;
  const at::Device device = x.device();
  if (shortcut.defined() && (shortcut.device() != device || shortcut.scalar_type() != at::kFloat ||
                             shortcut.sizes() != x.sizes() || shortcut.strides() != x.strides()))
    return false;
  for (const at::Tensor& number : {norm.mean, norm.var, norm.weight, norm.bias})
    if (!is_dense_float(number, device)) return false;
  return act.kind != TailActivation::prelu || (is_dense_float(act.slope, device) && act.slope.numel() == 1);
}

at::Tensor block_tail(const at::Tensor& x, const NormNumbers& norm, const at::Tensor& shortcut,
                      const TailActivation& act, std::int64_t pool) {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const OptTensor&, const OptTensor&, const OptTensor&, const OptTensor&,
                         const OptTensor&, const OptTensor&, double, std::string_view, std::int64_t)>(
          "bie::block_tail");
  return op.call(x, none_if_undefined(norm.mean), none_if_undefined(norm.var), none_if_undefined(norm.weight),
                 none_if_undefined(norm.bias), none_if_undefined(shortcut), none_if_undefined(act.slope), norm.eps,
                 activation_names[act.kind], pool);
}

}  // namespace bie::ops

BIE_OPERATORS(m) { m.impl("block_tail", bie::ops::block_tail_real); }
TORCH_LIBRARY_IMPL(bie, Meta, m) { m.impl("block_tail", bie::ops::block_tail_meta); }
