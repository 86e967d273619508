#include "bie/layers/quant_layer.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/accumulate.h>

#include <utility>

namespace bie::layers {

std::int64_t QuantLayer::weight_count() const { return c10::multiply_integers(weight_shape()); }

void QuantLayer::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  const c10::InferenceMode off(false);
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;  // Module::to casts everything
  for (const at::Tensor& tensor : scales())
    if (tensor.defined()) kept.emplace_back(tensor, tensor.detach());
  for (const at::Tensor& tensor : parameters(/*recurse=*/false))
    if (!at::isFloatingType(tensor.scalar_type())) kept.emplace_back(tensor, tensor.detach());
  torch::nn::Module::to(device, dtype, non_blocking);
  for (auto& [tensor, value] : kept) tensor.set_data(value.to(device));
  moved(device);
}

void QuantLayer::to(torch::Dtype dtype, bool non_blocking) {
  const std::vector<at::Tensor> own = parameters(/*recurse=*/false);
  to(own.empty() ? torch::Device(torch::kCPU) : own.front().device(), dtype, non_blocking);
}

void QuantLayer::to(torch::Device device, bool non_blocking) {
  const c10::InferenceMode off(false);
  torch::nn::Module::to(device, non_blocking);
  moved(device);
}

void prepare_layers(torch::nn::Module& module) {
  for (const auto& [name, layer] : quant_layers(module)) layer->prepare_params();
}

void pack_layers(torch::nn::Module& module, bool qweight_only) {
  for (const auto& [name, layer] : quant_layers(module)) layer->generate_quantized_weight(qweight_only);
}

}  // namespace bie::layers
