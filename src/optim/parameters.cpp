#include "bie/optim/parameters.h"

#include "bie/layers/integer_layer.h"
#include "bie/layers/packed_layer.h"

namespace bie::optim {

std::vector<Param> parameters(torch::nn::Module& module) {
  std::map<std::string, const layers::IntegerLayer*> weights;
  for (const auto& [name, layer] : layers::layers_of<layers::IntegerLayer>(module))
    weights[name.empty() ? "weight" : name + ".weight"] = layer;
  std::vector<Param> params;
  for (const auto& item : module.named_parameters()) {
    const auto layer = weights.find(item.key());
    const at::Tensor& tensor = item.value();
    if (layer == weights.end()) {
      if (tensor.requires_grad()) params.emplace_back(tensor, item.key());
    } else if (layer->second->weight_trainable()) {
      params.emplace_back(tensor, item.key(), layer->second->weight_bits(), layer->second->scale_w);
    }
  }
  for (const auto& [name, layer] : layers::layers_of<layers::PackedLayer>(module))
    if (layer->weight_trainable())
      params.emplace_back(layer->packed_weight(), name.empty() ? "qweight" : name + ".qweight");
  return params;
}

}  // namespace bie::optim
