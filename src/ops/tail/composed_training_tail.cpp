#include "ops/tail/composed_training_tail.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/where.h>

#include <vector>

namespace bie::ops {
namespace {

/// All axes except the channels.
std::vector<std::int64_t> axes_of(const at::Tensor& x) {
  return x.dim() == 2 ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{0, 2, 3};
}

double elements_of_channel(const at::Tensor& x) {
  return static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
}

/// One number per channel, shaped to broadcast against x.
at::Tensor beside(const at::Tensor& numbers, const at::Tensor& x) {
  return x.dim() == 2 ? numbers : numbers.view({-1, 1, 1});
}

at::Tensor normalised(const at::Tensor& x, const BatchStatistics& batch) {
  return x.sub(beside(batch.mean, x)).mul_(beside(batch.rstd, x));
}

at::Tensor activation_input(const TrainingTailInput& in, const at::Tensor& xhat) {
  at::Tensor z = in.weight.defined() ? xhat * beside(in.weight, xhat) : xhat;
  if (in.bias.defined()) z = z + beside(in.bias, xhat);
  return in.shortcut.defined() ? z + in.shortcut : z;
}

/// v where z > 0 or NaN; below what the activation makes of it.
at::Tensor bent(const at::Tensor& v, const at::Tensor& z, const TailActivation& act) {
  if (act.kind == TailActivation::none) return v;
  const at::Tensor below = act.kind == TailActivation::relu ? v.new_zeros({}) : v * act.slope.reshape({});
  return at::where(z.le(0), below, v);
}

}  // namespace

void composed_training_tail(const TrainingTailInput& in, double eps, const RunningStatistics& running,
                            const at::Tensor& y, const BatchStatistics& batch) {
  const at::Tensor x = in.x.to(at::kFloat);
  const auto [var, mean] = at::var_mean(x, axes_of(x), /*unbiased=*/false);
  batch.mean.copy_(mean);
  batch.rstd.copy_(var.add(eps).rsqrt());
  if (running.mean.defined()) {
    const double count = elements_of_channel(x);
    running.mean.lerp_(mean, running.momentum);
    running.var.lerp_(var * (count / (count - 1)), running.momentum);
  }
  const at::Tensor z = activation_input(in, normalised(x, batch)), v = bent(z, z, in.act);
  y.copy_(in.pool > 1 ? at::max_pool2d(v, in.pool) : v);
}

TrainingTailGrads composed_training_tail_grads(const at::Tensor& g, const TrainingTailInput& in,
                                               const BatchStatistics& batch, bool want_shortcut) {
  const at::Tensor x = in.x.to(at::kFloat), xhat = normalised(x, batch), z = activation_input(in, xhat);
  at::Tensor up = g.to(at::kFloat);
  if (in.pool > 1) {
    const at::Tensor v = bent(z, z, in.act);
    const std::vector<std::int64_t> size{in.pool, in.pool}, none{0, 0}, one{1, 1};
    const at::Tensor places = std::get<1>(at::max_pool2d_with_indices(v, size, size));
    up = at::max_pool2d_with_indices_backward(up, v, size, size, none, one, /*ceil_mode=*/false, places);
  }
  const at::Tensor dz = bent(up, z, in.act);
  const std::vector<std::int64_t> axes = axes_of(x);
  const at::Tensor sum = dz.sum(axes), product = (dz * xhat).sum(axes);
  const double count = elements_of_channel(x);
  const at::Tensor gain = in.weight.defined() ? batch.rstd * in.weight : batch.rstd;
  TrainingTailGrads grads;
  grads.x = (dz - beside(sum / count, x) - xhat * beside(product / count, x)).mul_(beside(gain, x));
  grads.x = grads.x.to(in.x.scalar_type());
  if (in.weight.defined()) grads.weight = product;
  if (in.bias.defined()) grads.bias = sum;
  if (want_shortcut) grads.shortcut = dz.to(in.shortcut.scalar_type());
  if (in.act.kind == TailActivation::prelu)
    grads.slope = at::where(z.le(0), up * z, z.new_zeros({})).sum().reshape(in.act.slope.sizes());
  return grads;
}

}  // namespace bie::ops
