#include "train/common_tensors.h"

#include <string>

#include "bie/layers/state_dict.h"

namespace bie::train {

at::Tensor tensor_of(const torch::nn::Module& module, const char* key) {
  const auto parameters = module.named_parameters(/*recurse=*/false);
  const at::Tensor* found = parameters.find(key);
  return found != nullptr ? *found : at::Tensor();
}

void copy_common(models::Classifier& from, models::Classifier& to) {
  const layers::StateDict source = layers::state_dict(from, /*packed=*/false);
  const auto copy = [&](const std::string& name, at::Tensor& tensor) {
    if (const auto found = source.find(name); found != source.end() && found->second.sizes() == tensor.sizes())
      tensor.copy_(found->second);
  };
  const auto quantised = layers::quant_layers(to);
  const auto belongs = [&](const std::string& name) {
    return quantised.count(name.substr(0, name.find_last_of('.'))) > 0;
  };
  for (auto& item : to.named_parameters())
    if (!belongs(item.key())) copy(item.key(), item.value());
  for (auto& item : to.named_buffers())
    if (!belongs(item.key())) copy(item.key(), item.value());
  // A quantised first layer has a norm in front, which is to do nothing.
  if (source.count("input_norm.running_var") == 0)
    for (auto& item : to.named_buffers())
      if (item.key() == "input_norm.running_var") item.value().fill_(1 - norm_eps);
}

}  // namespace bie::train
