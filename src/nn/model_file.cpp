#include "bie/nn/model_file.h"

#include <ATen/core/grad_mode.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bie/io/safetensors.h"

namespace bie::nn {
namespace {

constexpr int format_version = 1;

using Tensors = std::map<std::string, at::Tensor>;

/// Names of the quantised layers inside the model, "block1.product" and so on.
std::map<std::string, QuantLayer*> named_quant_layers(Classifier& model) {
  std::map<std::string, QuantLayer*> layers;
  for (const auto& item : model.named_modules())
    if (auto* layer = dynamic_cast<QuantLayer*>(item.value().get())) layers[item.key()] = layer;
  return layers;
}

/// Parameters and buffers that belong to no quantised layer.
Tensors float_tensors(Classifier& model, const std::map<std::string, QuantLayer*>& layers) {
  Tensors tensors;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    const std::string owner = name.substr(0, name.find_last_of('.'));
    if (layers.count(owner) == 0) tensors[name] = tensor;
  };
  for (const auto& item : model.named_parameters()) add(item.key(), item.value());
  for (const auto& item : model.named_buffers()) add(item.key(), item.value());
  return tensors;
}

ModelConfig config_of(const std::string& text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  TORCH_CHECK_VALUE(json.is_object(), path, ": the metadata entry 'bie' is not a JSON object");
  try {
    const int version = json.at("format_version").get<int>();
    TORCH_CHECK_VALUE(version >= 1 && version <= format_version, path, ": format version ", version,
                      ", this build reads up to ", format_version);
    ModelConfig c;
    c.arch = json.at("arch").get<std::string>();
    c.bits = json.at("bits").get<int>();
    c.image = json.at("image").get<std::array<std::int64_t, 3>>();
    c.classes = json.at("classes").get<std::int64_t>();
    c.hidden = json.at("hidden").get<std::int64_t>();
    c.depth = json.at("depth").get<std::int64_t>();
    return c;
  } catch (const nlohmann::json::exception& error) {
    TORCH_CHECK_VALUE(false, path, ": the metadata entry 'bie' is incomplete (", error.what(), ")");
  }
}

/// A model of these sizes, once the file is known to be large enough to fill it: a few bytes of metadata cannot make us
/// allocate terabytes.
std::shared_ptr<Classifier> make_checked(const ModelConfig& config, const Tensors& tensors, const std::string& path) {
  try {
    std::int64_t bytes = 0;
    for (const auto& [name, tensor] : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
    const std::int64_t weights = weight_count(config);
    TORCH_CHECK_VALUE(weights / 8 <= bytes, "it describes ", weights, " weights, the file holds ", bytes, " bytes");
    return make_model(config);
  } catch (const c10::ValueError& error) {
    TORCH_CHECK_VALUE(false, path, ": the metadata entry 'bie': ", error.what_without_backtrace());
  }
}

/// The entry of that name, taken out of the file's tensors.
at::Tensor take(Tensors& tensors, const std::string& name, const std::string& path) {
  const auto found = tensors.find(name);
  TORCH_CHECK_VALUE(found != tensors.end(), path, ": the entry '", name, "' is missing");
  at::Tensor tensor = found->second;
  tensors.erase(found);
  return tensor;
}

void copy_checked(const at::Tensor& target, const at::Tensor& source, const std::string& name,
                  const std::string& path) {
  TORCH_CHECK_VALUE(source.sizes() == target.sizes() && source.scalar_type() == target.scalar_type(), path,
                    ": the entry '", name, "' is ", source.sizes(), " of ", source.scalar_type(), ", ", target.sizes(),
                    " of ", target.scalar_type(), " is wanted");
  target.copy_(source);
}

}  // namespace

void save_model(Classifier& model, const std::string& path) {
  const auto layers = named_quant_layers(model);
  Tensors tensors = float_tensors(model, layers);
  for (auto& [name, tensor] : tensors) tensor = tensor.detach();
  for (const auto& [prefix, layer] : layers)
    for (const auto& [key, tensor] : layer->packed_state()) tensors[prefix + "." + key] = tensor;
  const ModelConfig& c = model.config();
  const nlohmann::json json = {{"format_version", format_version},
                               {"arch", c.arch},
                               {"bits", c.bits},
                               {"image", c.image},
                               {"classes", c.classes},
                               {"hidden", c.hidden},
                               {"depth", c.depth}};
  io::save_safetensors(path, tensors, {{"bie", json.dump()}});
}

std::shared_ptr<Classifier> load_model(const std::string& path) {
  io::SafetensorsFile file = io::load_safetensors(path);
  const auto metadata = file.metadata.find("bie");
  TORCH_CHECK_VALUE(metadata != file.metadata.end(), path, ": no metadata entry 'bie', this is not a model of ours");
  const ModelConfig config = config_of(metadata->second, path);
  const at::NoGradGuard no_grad;
  std::shared_ptr<Classifier> model = make_checked(config, file.tensors, path);
  const auto layers = named_quant_layers(*model);
  for (const auto& [name, target] : float_tensors(*model, layers))
    copy_checked(target, take(file.tensors, name, path), name, path);
  for (const auto& [prefix, layer] : layers) {
    for (const char* key : {"bias_a", "scale_a", "scale_w"}) {
      const std::string name = prefix + "." + key;
      const at::Tensor& target = key[0] == 'b' ? layer->bias_a : key[6] == 'a' ? layer->scale_a : layer->scale_w;
      copy_checked(target, take(file.tensors, name, path), name, path);
    }
    const std::string name = prefix + ".qweight";
    try {
      layer->set_quantized_weight_data(take(file.tensors, name, path), layer->scale_w);
    } catch (const c10::ValueError& error) {
      TORCH_CHECK_VALUE(false, path, ": the entry '", name, "': ", error.what_without_backtrace());
    }
  }
  TORCH_CHECK_VALUE(file.tensors.empty(), path, ": the entry '", file.tensors.begin()->first,
                    "' belongs to no layer of this model");
  model->eval();
  return model;
}

}  // namespace bie::nn
