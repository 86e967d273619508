// A layer with a low-bit weight: what every kind of them offers, whatever the weight's format and whether or not the
// activation is quantised too.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace bie::layers {

/// Tensors by name.
using StateDict = std::map<std::string, at::Tensor>;

/// Several threads may call forward in evaluation side by side, the first time too. Everything else, training among it,
/// belongs to one thread at a time. Scales and integers keep their dtype whatever `to` is asked for.
class QuantLayer : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
  /// Makes the weight ready for training; acts once, on a weight that is not.
  virtual void prepare_params() = 0;
  /// Packs the weight into `qweight`; qweight_only drops the form in which it was trained.
  virtual void generate_quantized_weight(bool qweight_only = false) = 0;
  /// Forgets every derived form of the weight.
  virtual void repack() = 0;

  /// The layer's tensors by their keys, which are BITorch Engine's; with `packed` the weight as qweight. The layer is
  /// not changed.
  virtual StateDict state(bool packed) const = 0;
  /// Takes a state that has been checked; cannot fail.
  using Take = std::function<void()>;
  /// Takes the layer's entries ("<prefix>weight" and so on) out of `entries` in whichever form they are.
  /// @throws c10::ValueError that names the entry for anything else, NaN and infinity included.
  virtual Take check_state(StateDict& entries, const std::string& prefix) = 0;

  /// Whether training makes a gradient for the weight, float or integer; it does unless told otherwise.
  virtual void set_weight_trainable(bool trainable) = 0;
  virtual bool weight_trainable() const = 0;

  /// "BinaryLinear", "Q4Conv2d".
  virtual const char* kind() const = 0;
  virtual int weight_bits() const = 0;
  /// Shape of the weight as floats.
  virtual const std::vector<std::int64_t>& weight_shape() const = 0;
  /// Elements of the weight.
  std::int64_t weight_count() const;
  /// "float", "int8" or "packed".
  virtual const char* weight_form() const = 0;
  /// Bytes that evaluation holds besides the layer's tensors: the packed form of a weight, the kernel's panels.
  virtual std::int64_t derived_bytes() const = 0;

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) final;
  void to(torch::Dtype dtype, bool non_blocking = false) final;
  void to(torch::Device device, bool non_blocking = false) final;

 protected:
  /// The float tensors whose dtype `to` does not change.
  virtual std::vector<at::Tensor> float_scales() const = 0;
  /// Called after the tensors moved to `device`; moves everything else.
  virtual void moved(torch::Device device) = 0;
};

/// Every layer of a kind, or with a base, inside a module, itself included, by name.
template <class Layer>
std::map<std::string, Layer*> layers_of(torch::nn::Module& module) {
  std::map<std::string, Layer*> layers;
  if (auto* self = dynamic_cast<Layer*>(&module)) layers[""] = self;
  for (const auto& item : module.named_modules(/*name_prefix=*/"", /*include_self=*/false))
    if (auto* layer = dynamic_cast<Layer*>(item.value().get())) layers[item.key()] = layer;
  return layers;
}
inline std::map<std::string, QuantLayer*> quant_layers(torch::nn::Module& module) {
  return layers_of<QuantLayer>(module);
}
/// prepare_params and generate_quantized_weight of each of them.
void prepare_layers(torch::nn::Module& module);
void pack_layers(torch::nn::Module& module, bool qweight_only = true);

}  // namespace bie::layers
