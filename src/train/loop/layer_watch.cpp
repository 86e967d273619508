#include "train/loop/layer_watch.h"

#include <ATen/ops/ne.h>

#include <limits>

#include "bie/layers/nbit_layer.h"

namespace bie::train {
namespace {

/// Sign masks of all binary weights: whether each one is negative.
std::map<std::string, at::Tensor> negative_weights(const models::Classifier& model) {
  std::map<std::string, at::Tensor> negative;
  for (const models::ProductLayer& product : model.products()) {
    const auto* layer = dynamic_cast<const layers::IntegerLayer*>(product.layer.get());
    if (layer != nullptr && layer->weight_bits() == 1 && layer->weight.defined())
      negative[product.name] = layer->weight.detach().lt(0).cpu();
  }
  return negative;
}

std::int64_t differences(const at::Tensor& a, const at::Tensor& b) { return a.ne(b).sum().item<std::int64_t>(); }

}  // namespace

ByLayer step_sizes(const models::Classifier& model) {
  ByLayer sizes;
  for (const models::ProductLayer& product : model.products())
    if (const auto* layer = dynamic_cast<const layers::NbitLayer*>(product.layer.get()))
      sizes[product.name] = layer->scale_a.item<double>();
  return sizes;
}

Signs::Signs(const models::Classifier& model) : negative_(negative_weights(model)) {}

ByLayer Signs::flipped(const models::Classifier& model) const {
  ByLayer shares;
  for (const auto& [name, now] : negative_weights(model))
    shares[name] = static_cast<double>(differences(negative_.at(name), now)) / static_cast<double>(now.numel());
  return shares;
}

double Signs::flipped_share(const models::Classifier& model) const {
  if (negative_.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::int64_t flipped = 0, all = 0;
  for (const auto& [name, now] : negative_weights(model)) {
    flipped += differences(negative_.at(name), now);
    all += now.numel();
  }
  return static_cast<double>(flipped) / static_cast<double>(all);
}

}  // namespace bie::train
