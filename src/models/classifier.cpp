#include "bie/models/classifier.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "bie/models/architecture.h"
#include "layers/named.h"
#include "models/blocks.h"
#include "models/model_plan.h"

namespace bie::models {
namespace {

constexpr layers::Named<WeightForm> weight_forms[] = {
    {WeightForm::usual, "usual"}, {WeightForm::floating, "float"}, {WeightForm::integer, "int8"}};

}  // namespace

const char* name(WeightForm form) { return layers::name_of(weight_forms, form); }

WeightForm weight_form_of(const std::string& text) { return layers::value_of(weight_forms, "the weights' form", text); }

std::int64_t Classifier::quantised_count() const {
  std::int64_t count = 0;
  for (const auto& layer : quant_layers_) count += layer->weight_count();
  return count;
}

std::vector<ProductLayer> Classifier::products() const {
  std::vector<ProductLayer> products;
  for (const Member& member : members_)
    products.push_back({member.product->name(), member.product->module(), member.norm});
  return products;
}

void Classifier::set_probe(const Probe& probe) {
  for (const Member& member : members_) member.product->set_probe(probe);
}

void Classifier::add_product(const std::shared_ptr<Product>& product, const std::shared_ptr<torch::nn::Module>& norm) {
  members_.push_back({product, norm});
  if (product->low()) quant_layers_.push_back(product->low());
}

std::vector<std::string> layer_names(const ModelConfig& c) {
  std::vector<std::string> names;
  for (const PlannedLayer& layer : plan(c)) names.push_back(layer.name);
  return names;
}

std::int64_t weight_count(const ModelConfig& c) {
  std::int64_t count = 0;
  for (const PlannedLayer& layer : plan(c)) count += layer.weights();
  return count;
}

namespace {

/// Layers start with weights in +-1/sqrt(k), which shrinks a signal threefold; a BatchNorm makes up for it. Without
/// one, weights start in +-sqrt(6 / ((1 + 0.25^2) * k)), which keeps it through a PReLU (He et al. 2015).
void keep_variance(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters())
    if (item.key().ends_with("product.weight")) item.value().mul_(std::sqrt(6 / 1.0625));
}

}  // namespace

std::shared_ptr<Classifier> make_model(const ModelConfig& c) {
  weight_count(c);  // refuses what cannot be built
  const std::shared_ptr<Classifier> model = architecture_of(c).make(c);
  if (!c.norm) keep_variance(*model);
  return model;
}

}  // namespace bie::models
