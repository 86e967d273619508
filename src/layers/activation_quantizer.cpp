#include "bie/layers/activation_quantizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <vector>

#include "bie/layers/quant_layer.h"
#include "layers/named.h"

namespace bie::layers {
namespace {

void check_floor(StepSizeGuard guard) {
  TORCH_CHECK_VALUE(guard.floor >= 0 && guard.floor <= 1, "the step size's floor: expected a number in [0, 1], got ",
                    guard.floor);
}

}  // namespace

Compat compat_of(const std::string& name) {
  constexpr Named<Compat> table[] = {{Compat::none, "none"}, {Compat::bie_0_2_6, "bie-0.2.6"}};
  return value_of(table, "compat", name);
}

ActivationQuantizer::ActivationQuantizer(int bits, std::int64_t features, std::int64_t feature_axis)
    : bits_(bits), feature_axis_(feature_axis) {
  const c10::InferenceMode off(false);
  bias_a = at::zeros({features});
  scale_a = at::zeros({});
  if (bits > 1) eps = at::full({}, 1e-5);
}

void ActivationQuantizer::set_step_size_guard(StepSizeGuard guard) {
  check_floor(guard);
  guard_ = guard;
}

void ActivationQuantizer::set_guarded_scale(float value) {
  guarded_scale_ = value;
  scale_ready_ = false;
}

void ActivationQuantizer::check_input(const at::Tensor& x) const {
  TORCH_CHECK_VALUE(x.dim() >= 1, "x: expected at least one axis, got a 0-dimensional tensor");
  const std::int64_t features = x.size(feature_axis_);
  TORCH_CHECK_VALUE(features == bias_a.size(0), "x: expected the layer's ", bias_a.size(0), " features, got ", features,
                    ", an x of ", x.sizes());
}

void ActivationQuantizer::guard_scale() {
  // data(): the same graph may hold the scale already, where the layer is called twice.
  if (const float least = least_scale(); least > 0) scale_a.data().clamp_min_(least);
}

double ActivationQuantizer::smallest_step() const {
  const std::lock_guard lock(eps_);
  if (!(eps_seen_ == eps)) {
    eps_value_ = eps.item<float>();
    eps_seen_ = Seen(eps);
  }
  return eps_value_;
}

void ActivationQuantizer::first_batch_scale(const at::Tensor& x, bool training) {
  if (scale_ready_) return;
  const std::lock_guard lock(first_batch_);
  if (scale_ready_) return;
  const at::NoGradGuard no_grad;
  const bool fresh = scale_a.item<float>() == 0;
  if (fresh && !training) {
    TORCH_WARN_ONCE("a quantised layer takes its activation scale from a batch of the evaluation: it was not trained");
  }
  ops::init_scale_(scale_a, x, first_batch_factor());
  const float value = scale_a.item<float>();
  if (fresh) guarded_scale_ = value;
  scale_ready_ = value != 0;
}

ActivationQuantizer::Activation ActivationQuantizer::activation(const at::Tensor& x, bool training) {
  if (!at::isFloatingType(x.scalar_type())) return {x, bias_a};
  check_input(x);
  first_batch_scale(x, training);
  if (training) guard_scale();
  const bool rounds = compat_ == Compat::bie_0_2_6 && x.scalar_type() != at::kFloat;
  if (!rounds) return {x, bias_a};
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[static_cast<std::size_t>(feature_axis_ < 0 ? x.dim() - 1 : feature_axis_)] = bias_a.size(0);
  return {x + bias_a.to(x.scalar_type()).view(shape), {}};
}

at::Tensor ActivationQuantizer::along_features(const at::Tensor& channels, const at::Tensor& like) const {
  const at::Tensor same = channels.to(like.scalar_type());
  return feature_axis_ < 0 ? same : same.view({1, -1, 1, 1});
}

void set_grad_mode(torch::nn::Module& module, ops::GradMode mode) {
  for (const auto& [name, layer] : layers_of<ActivationQuantizer>(module)) layer->set_grad_mode(mode);
}

void set_compat(torch::nn::Module& module, Compat compat) {
  for (const auto& [name, layer] : layers_of<ActivationQuantizer>(module)) layer->set_compat(compat);
}

void set_step_size_guard(torch::nn::Module& module, StepSizeGuard guard) {
  check_floor(guard);
  for (const auto& [name, layer] : layers_of<ActivationQuantizer>(module)) layer->set_step_size_guard(guard);
}

}  // namespace bie::layers
