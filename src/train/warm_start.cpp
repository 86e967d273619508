#include "bie/train/warm_start.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <memory>

#include "bie/layers/nbit_layer.h"
#include "bie/train/post_training.h"
#include "train/common_tensors.h"

namespace bie::train {
namespace {

/// Sizes of the weight of a float or a quantised layer.
std::vector<std::int64_t> weight_sizes(const models::ProductLayer& product) {
  const auto* quantised = dynamic_cast<const layers::QuantLayer*>(product.layer.get());
  return quantised != nullptr ? quantised->weight_shape() : tensor_of(*product.layer, "weight").sizes().vec();
}

/// The step sizes of the activations that the float net meets before each layer.
std::map<std::string, double> activation_steps(models::Classifier& source, const at::Tensor& calibration,
                                               const std::map<std::string, int>& bits) {
  std::map<std::string, double> steps;
  constexpr double unused = 100;  // the percentile of the other rule
  source.set_probe([&](const std::string& name, const at::Tensor& x) {
    if (const auto found = bits.find(name); found != bits.end())
      steps[name] = step_size(x, found->second, StepRule::mse, unused);
  });
  const auto take_away = [&](void*) { source.set_probe({}); };
  const std::unique_ptr<void, decltype(take_away)> guard(&source, take_away);
  source.eval();
  source.forward(calibration);
  return steps;
}

}  // namespace

models::ModelConfig with_net_of(models::ModelConfig config, const models::ModelConfig& source) {
  config.arch = source.arch;
  config.hidden = source.hidden;
  config.depth = source.depth;
  config.width = source.width;
  config.layers = source.layers;
  config.norm = source.norm;
  if (config.linear_bits == 0 && source.linear_bits != 0) config.linear_bits = config.bits;
  return config;
}

std::vector<std::string> start_from(models::Classifier& model, models::Classifier& source,
                                    const at::Tensor& calibration) {
  TORCH_CHECK_VALUE(source.quant_layers().empty(),
                    "the model to start from: expected a float one, got a quantised one");
  const std::vector<models::ProductLayer> to = model.products(), from = source.products();
  TORCH_CHECK_VALUE(to.size() == from.size(), "the model to start from has ", from.size(), " layers, the new one has ",
                    to.size());
  std::vector<std::string> fresh;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::vector<std::int64_t> own = weight_sizes(to[i]), theirs = weight_sizes(from[i]);
    const bool last = i + 1 == to.size(),
               only_classes = last && std::equal(own.begin() + 1, own.end(), theirs.begin() + 1, theirs.end());
    TORCH_CHECK_VALUE(own == theirs || only_classes, "layer ", to[i].name, " has weights of ", at::IntArrayRef(own),
                      ", those of the model to start from are ", at::IntArrayRef(theirs));
    if (own != theirs) fresh.push_back(to[i].name);
  }
  const at::NoGradGuard no_grad;
  copy_common(source, model);
  std::map<std::string, int> bits;
  for (const models::ProductLayer& product : to)
    if (const auto* layer = dynamic_cast<const layers::NbitLayer*>(product.layer.get()))
      bits[product.name] = layer->activation_bits();
  const std::map<std::string, double> steps = activation_steps(source, calibration, bits);
  for (std::size_t i = 0; i < to.size(); ++i) {
    auto* const layer = dynamic_cast<layers::IntegerLayer*>(to[i].layer.get());
    if (layer == nullptr) continue;
    const bool is_fresh = std::find(fresh.begin(), fresh.end(), to[i].name) != fresh.end();
    if (!is_fresh) layer->set_weight_data(tensor_of(*from[i].layer, "weight").clone());
    if (const at::Tensor bias = tensor_of(*from[i].layer, "bias"); layer->bias.defined() && bias.defined() && !is_fresh)
      layer->bias.copy_(bias);
    if (const auto step = steps.find(to[i].name); step != steps.end()) {
      layer->scale_a.fill_(step->second);
      layer->set_guarded_scale(static_cast<float>(step->second));
    }
  }
  return fresh;
}

}  // namespace bie::train
