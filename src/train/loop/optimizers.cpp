#include "train/loop/optimizers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>

#include "bie/optim/parameters.h"

namespace bie::train {
namespace {

// The BatchNorm after a binary layer makes the loss blind to its scale_a, and Adam turns any steady sign into full
// steps: at the rate of the other floats it drifts.
constexpr double binary_scale_rate = 0.01;

enum GroupIndex : std::size_t { weights, others, binary_scales, signs, codes, group_count };

GroupIndex group_of(const optim::Param& param, const std::vector<const void*>& scales) {
  if (param.tensor.scalar_type() == at::kChar) return param.bits == 1 ? signs : codes;
  for (const void* scale : scales)
    if (param.tensor.unsafeGetTensorImpl() == scale) return binary_scales;
  return param.tensor.dim() > 1 ? weights : others;
}

/// The tensors that torch's optimizers keep of one parameter.
template <class Visit>
void visit_state(torch::optim::Optimizer& optimizer, const at::Tensor& param, bool create, const Visit& visit) {
  auto& states = optimizer.state();
  void* const key = param.unsafeGetTensorImpl();
  if (auto* sgd = dynamic_cast<torch::optim::SGD*>(&optimizer); sgd != nullptr) {
    if (create && states.count(key) == 0) states[key] = std::make_unique<torch::optim::SGDParamState>();
    if (states.count(key) == 0) return;
    auto& state = static_cast<torch::optim::SGDParamState&>(*states.at(key));
    at::Tensor momentum = state.momentum_buffer();
    visit("momentum_buffer", momentum);
    state.momentum_buffer(momentum);
    return;
  }
  if (create && states.count(key) == 0) states[key] = std::make_unique<torch::optim::AdamWParamState>();
  if (states.count(key) == 0) return;
  auto& state = static_cast<torch::optim::AdamWParamState&>(*states.at(key));
  at::Tensor step = at::full({}, state.step(), at::kLong), exp_avg = state.exp_avg(), exp_avg_sq = state.exp_avg_sq();
  visit("step", step);
  visit("exp_avg", exp_avg);
  visit("exp_avg_sq", exp_avg_sq);
  state.step(step.item<std::int64_t>());
  state.exp_avg(exp_avg);
  state.exp_avg_sq(exp_avg_sq);
}

}  // namespace

Optimizers::Optimizers(models::Classifier& model, const TrainOptions& o, const Recipe& recipe, std::int64_t steps) {
  std::vector<const void*> scales;
  for (const auto& layer : model.quant_layers())
    if (layer->weight_bits() == 1) scales.push_back(layer->scale_a.unsafeGetTensorImpl());

  std::vector<optim::DiodeMix::Group> groups(group_count);
  // eps as torch's AdamW has it: gradients of deep nets without normalisation are near DiodeMix's 1e-6.
  for (auto& group : groups) group.options = {recipe.lr, 0.9, 0.999, 1e-8};
  groups[weights].options.weight_decay = recipe.weight_decay;
  groups[binary_scales].options.lr = recipe.lr * binary_scale_rate;
  for (const GroupIndex index : {signs, codes}) {
    groups[index].options = {recipe.integer_lr, 0.9, 0.999, 1e-8};
    groups[index].options.renew_scale_every = o.renew_scale_every;
  }
  groups[signs].options.beta1 = 0.99;
  groups[signs].options.beta2 = std::clamp(1 - 1 / (recipe.integer_memory * static_cast<double>(steps)), 0.9, 0.99999);
  for (optim::Param& param : optim::parameters(model)) {
    if (param.tensor.scalar_type() == at::kChar) {
      param.tensor.mutable_grad().reset();  // of an earlier run, perhaps of the other dtype
      param.tensor.set_grad_dtype(o.wide_gradients ? at::kFloat : at::kChar);
      moves_integers_ = true;
    }
    groups[group_of(param, scales)].params.push_back(std::move(param));
  }

  if (o.optimizer != OptimizerKind::diodemix) {
    std::vector<torch::optim::OptimizerParamGroup> floats;
    for (const GroupIndex index : {weights, others, binary_scales}) {
      std::vector<at::Tensor> tensors;
      for (optim::Param& param : groups[index].params) {
        tensors.push_back(param.tensor);
        torch_params_.push_back({param.name, param.tensor});
      }
      groups[index].params.clear();
      if (tensors.empty()) continue;
      const optim::DiodeMixOptions& options = groups[index].options;
      std::unique_ptr<torch::optim::OptimizerOptions> chosen;
      if (o.optimizer == OptimizerKind::sgd)
        chosen = std::make_unique<torch::optim::SGDOptions>(
            torch::optim::SGDOptions(options.lr).momentum(0.9).nesterov(true).weight_decay(options.weight_decay));
      else
        chosen = std::make_unique<torch::optim::AdamWOptions>(
            torch::optim::AdamWOptions(options.lr).weight_decay(options.weight_decay));
      torch_rates_.push_back(options.lr);
      floats.emplace_back(std::move(tensors), std::move(chosen));
    }
    if (o.optimizer == OptimizerKind::sgd)
      torch_ = std::make_unique<torch::optim::SGD>(std::move(floats), torch::optim::SGDOptions(recipe.lr));
    else
      torch_ = std::make_unique<torch::optim::AdamW>(std::move(floats), torch::optim::AdamWOptions(recipe.lr));
  }
  for (const auto& group : groups) diode_rates_.push_back(group.options.lr);
  diode_ = std::make_unique<optim::DiodeMix>(std::move(groups), o.seed, o.moments);
}

void Optimizers::zero_grad() {
  diode_->zero_grad();
  if (torch_) torch_->zero_grad();
}

void Optimizers::step(double factor) {
  for (std::size_t i = 0; i < diode_rates_.size(); ++i) diode_->groups()[i].options.lr = diode_rates_[i] * factor;
  diode_->step();
  if (!torch_) return;
  auto& groups = torch_->param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(torch_rates_[i] * factor);
  torch_->step();
}

layers::StateDict Optimizers::state() const {
  layers::StateDict state;
  for (const auto& [name, tensor] : diode_->state()) state["diodemix." + name] = tensor;
  for (const Named& param : torch_params_)
    visit_state(*torch_, param.tensor, false, [&](const char* key, const at::Tensor& tensor) {
      if (tensor.defined()) state["torch." + param.name + "." + key] = tensor;
    });
  return state;
}

void Optimizers::load_state(const layers::StateDict& state) {
  layers::StateDict diode, left;
  for (const auto& [name, tensor] : state)
    if (name.starts_with("diodemix."))
      diode[name.substr(9)] = tensor;
    else
      left[name] = tensor;
  diode_->load_state(diode);
  for (const Named& param : torch_params_) {
    if (left.empty()) break;
    visit_state(*torch_, param.tensor, true, [&](const char* key, at::Tensor& tensor) {
      const std::string name = "torch." + param.name + "." + key;
      const auto found = left.find(name);
      TORCH_CHECK_VALUE(found != left.end(), "the optimizer's state has no entry '", name, "'");
      TORCH_CHECK_VALUE(found->second.dim() == 0 || found->second.sizes() == param.tensor.sizes(), "the entry '", name,
                        "': expected ", param.tensor.sizes(), ", got ", found->second.sizes());
      tensor = found->second.to(found->second.options().device(param.tensor.device()), /*non_blocking=*/false,
                                /*copy=*/true);
      left.erase(found);
    });
  }
  TORCH_CHECK_VALUE(left.empty(), "the optimizer's entry '", left.begin()->first, "' belongs to no parameter");
}

std::int64_t Optimizers::state_bytes() const {
  std::int64_t bytes = diode_->state_bytes();
  for (const auto& [name, tensor] : state())
    if (name.starts_with("torch.") && tensor.dim() > 0) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace bie::train
