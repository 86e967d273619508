#include "bie/optim/diode_mix.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <cmath>

namespace bie::optim {
namespace {

constexpr std::int64_t grain = 1 << 14;

void check(const DiodeMixOptions& o) {
  TORCH_CHECK_VALUE(o.lr >= 0, "DiodeMix: lr is ", o.lr, ", a number >= 0 is wanted");
  TORCH_CHECK_VALUE(o.eps >= 0, "DiodeMix: eps is ", o.eps, ", a number >= 0 is wanted");
  TORCH_CHECK_VALUE(o.weight_decay >= 0, "DiodeMix: weight_decay is ", o.weight_decay, ", a number >= 0 is wanted");
  for (const double beta : {o.beta1, o.beta2})
    TORCH_CHECK_VALUE(beta >= 0 && beta < 1, "DiodeMix: a beta is ", beta, ", a number in [0, 1) is wanted");
}

void step_float(at::Tensor& param, const at::Tensor& grad, float* l, float* s, std::int64_t t,
                const DiodeMixOptions& o) {
  double step = o.lr;
  if (o.correct_bias) {
    const double count = static_cast<double>(t);
    step *= std::sqrt(1 - std::pow(o.beta2, count)) / (1 - std::pow(o.beta1, count));
  }
  const float b1 = static_cast<float>(o.beta1), b2 = static_cast<float>(o.beta2), eps = static_cast<float>(o.eps);
  const float rate = static_cast<float>(step), decay = static_cast<float>(o.lr * o.weight_decay);
  const float* g = grad.const_data_ptr<float>();
  float* p = param.mutable_data_ptr<float>();
  at::parallel_for(0, param.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      l[i] = b1 * l[i] + (1 - b1) * g[i];
      s[i] = b2 * s[i] + (1 - b2) * g[i] * g[i];
      p[i] -= rate * l[i] / (std::sqrt(s[i]) + eps);
      p[i] -= decay * p[i];
    }
  });
}

template <class G>
void step_binary(at::Tensor& weight, const at::Tensor& grad, float* l, float* s, const DiodeMixOptions& o) {
  const float d1 = static_cast<float>(1 - o.beta1), d2 = static_cast<float>(1 - o.beta2);
  const float lr = static_cast<float>(o.lr);
  const G* g = grad.const_data_ptr<G>();
  std::int8_t* w = weight.mutable_data_ptr<std::int8_t>();
  at::parallel_for(0, weight.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      l[i] += d1 * (static_cast<float>(g[i]) - l[i]);
      const float v = l[i] > 0 ? lr : l[i] < 0 ? -lr : 0.0f;
      s[i] += d2 * (v - s[i]);
      const bool target_negative = s[i] > 0;  // -sgn(s), 0 counts as +1
      const bool negative = w[i] < 0;
      if (target_negative != negative) w[i] = static_cast<std::int8_t>(w[i] == -128 ? 127 : -w[i]);
    }
  });
}

}  // namespace

DiodeMix::DiodeMix(std::vector<Group> groups, std::uint64_t seed)
    : groups_(std::move(groups)), states_(groups_.size()), generator_(at::detail::createCPUGenerator(seed)) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    check(groups_[i].options);
    for (const at::Tensor& param : groups_[i].params)
      TORCH_CHECK_VALUE(param.defined() && param.is_contiguous() &&
                            (param.scalar_type() == at::kFloat || param.scalar_type() == at::kChar),
                        "DiodeMix: a parameter is not a dense float32 or int8 tensor");
    states_[i].resize(groups_[i].params.size());
  }
}

void DiodeMix::zero_grad() {
  for (Group& group : groups_)
    for (at::Tensor& param : group.params) param.mutable_grad() = at::Tensor();
}

void DiodeMix::step() {
  bool any = false;
  for (const Group& group : groups_)
    for (const at::Tensor& param : group.params) any |= param.grad().defined();
  for (const Group& group : groups_)
    for (const at::Tensor& param : group.params)
      TORCH_CHECK(!any || param.scalar_type() != at::kChar || param.grad().defined(),
                  "DiodeMix: an int8 weight of shape ", param.sizes(),
                  " has no gradient; its layer ran outside training or its graph was compiled away");
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    check(groups_[i].options);
    for (std::size_t j = 0; j < groups_[i].params.size(); ++j)
      if (groups_[i].params[j].grad().defined()) step_one(groups_[i].params[j], states_[i][j], groups_[i].options);
  }
}

void DiodeMix::step_one(at::Tensor& param, State& state, const DiodeMixOptions& options) {
  TORCH_CHECK(!param.grad().is_sparse(), "DiodeMix: sparse gradients are not supported");
  const at::Tensor grad = param.grad().contiguous();
  if (!state.exp_avg_l.defined()) {
    state.exp_avg_l = at::zeros_like(param, param.options().dtype(at::kFloat));
    state.exp_avg_s = at::zeros_like(state.exp_avg_l);
    if (param.scalar_type() == at::kChar) {
      state.exp_avg_s.uniform_(0, 1, generator_).mul_(param.sign()).mul_(-1e-3);
    }
  }
  ++state.step;
  float* l = state.exp_avg_l.mutable_data_ptr<float>();
  float* s = state.exp_avg_s.mutable_data_ptr<float>();
  if (param.scalar_type() == at::kFloat)
    step_float(param, grad, l, s, state.step, options);
  else if (grad.scalar_type() == at::kChar)
    step_binary<std::int8_t>(param, grad, l, s, options);
  else
    step_binary<float>(param, grad.to(at::kFloat), l, s, options);
  param.unsafeGetTensorImpl()->bump_version();
}

}  // namespace bie::optim
