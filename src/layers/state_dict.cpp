#include "bie/layers/state_dict.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "layers/finite.h"

namespace bie::layers {
namespace {

std::string dotted(const std::string& layer) { return layer.empty() ? "" : layer + "."; }

std::string dtype(const at::Tensor& tensor) { return ops::dtype_name(tensor.scalar_type()); }

/// Parameters and buffers that belong to no quantised layer.
StateDict plain_tensors(torch::nn::Module& module, const std::map<std::string, QuantLayer*>& layers) {
  StateDict tensors;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const std::size_t dot = name.find_last_of('.');
    const std::string owner = dot == std::string::npos ? "" : name.substr(0, dot);
    if (layers.count(owner) == 0 && tensor.defined()) tensors[name] = tensor;
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return tensors;
}

}  // namespace

StateDict state_dict(torch::nn::Module& module, bool packed) {
  const auto layers = quant_layers(module);
  StateDict tensors = plain_tensors(module, layers);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach();
  for (const auto& [name, layer] : layers)
    for (const auto& [key, tensor] : layer->state(packed)) tensors[dotted(name) + key] = tensor;
  return tensors;
}

void load_state_dict(torch::nn::Module& module, const StateDict& entries) {
  const auto layers = quant_layers(module);
  StateDict left = entries;
  std::vector<QuantLayer::Take> takes;
  for (const auto& [name, layer] : layers) takes.push_back(layer->check_state(left, dotted(name)));
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, target] : plain_tensors(module, layers)) {
    const auto found = left.find(name);
    TORCH_CHECK_VALUE(found != left.end(), "the entry '", name, "' is missing");
    const at::Tensor& source = found->second;
    const bool both_float = at::isFloatingType(source.scalar_type()) && at::isFloatingType(target.scalar_type());
    TORCH_CHECK_VALUE(source.sizes() == target.sizes() && (both_float || source.scalar_type() == target.scalar_type()),
                      "the entry '", name, "': expected ", target.sizes(), " of ", dtype(target), ", got ",
                      source.sizes(), " of ", dtype(source));
    const at::Tensor value = both_float ? finite(source.to(target.scalar_type()), "the entry '" + name + "'") : source;
    TORCH_CHECK_VALUE(!name.ends_with("running_var") || value.ge(0).all().item<bool>(), "the entry '", name,
                      "' holds a negative variance");
    copies.emplace_back(target, value);
    left.erase(found);
  }
  TORCH_CHECK_VALUE(left.empty(), "the entry '", left.begin()->first, "' belongs to no layer of this model");
  const at::NoGradGuard no_grad;
  for (auto& [target, source] : copies) target.copy_(source);
  for (const QuantLayer::Take& take : takes) take();
}

}  // namespace bie::layers
