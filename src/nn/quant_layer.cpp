#include "bie/nn/quant_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace bie::nn {

QuantLayer::QuantLayer(at::IntArrayRef weight_shape, at::IntArrayRef packed_shape, at::ScalarType packed_type)
    : packed_shape_(packed_shape.vec()),
      packed_type_(packed_type),
      weight_count_(c10::multiply_integers(weight_shape)) {
  for (const std::int64_t size : weight_shape)
    TORCH_CHECK_VALUE(size > 0, "a quantised layer wants positive sizes, its weight would be ", weight_shape);
  const double depth = static_cast<double>(weight_count_ / weight_shape[0]);
  const double bound = 1 / std::sqrt(depth);  // Kaiming uniform with a = sqrt(5)
  weight = register_parameter("weight", at::empty(weight_shape).uniform_(-bound, bound));
  qweight = register_parameter("qweight", at::Tensor(), /*requires_grad=*/false);
  bias_a = register_parameter("bias_a", at::zeros({weight_shape[1]}));
  scale_a = register_parameter("scale_a", at::zeros({}));
  scale_w = register_buffer("scale_w", at::ones({}));
  anchor_ = at::empty({0}).requires_grad_();
}

QuantLayer::Key QuantLayer::key_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.const_data_ptr(), tensor.is_inference() ? 0 : static_cast<std::uint32_t>(tensor._version())};
}

void QuantLayer::generate_quantized_weight(bool qweight_only) {
  if (weight.defined()) {
    const at::NoGradGuard no_grad;
    repack();
    current_ = pack();
    weight_key_ = key_of(weight);
    parameters_["qweight"] = qweight = current_.qweight;
    scale_w.copy_(current_.scale_w);
  }
  if (qweight_only) {
    weight = at::Tensor();
    parameters_["weight"] = weight;
  }
}

void QuantLayer::set_quantized_weight_data(const at::Tensor& packed, const at::Tensor& weight_scale) {
  TORCH_CHECK_VALUE(packed.sizes() == at::IntArrayRef(packed_shape_) && packed.scalar_type() == packed_type_,
                    "qweight is ", packed.sizes(), " of ", packed.scalar_type(), ", ", at::IntArrayRef(packed_shape_),
                    " of ", packed_type_, " is wanted");
  TORCH_CHECK_VALUE(weight_scale.defined() && weight_scale.numel() == 1, "the weight's scale is not one number");
  const at::NoGradGuard no_grad;
  repack();
  weight = at::Tensor();
  parameters_["weight"] = weight;
  parameters_["qweight"] = qweight = packed.detach().contiguous();
  scale_w.copy_(weight_scale.reshape(scale_w.sizes()));
}

void QuantLayer::repack() {
  current_ = {};
  weight_key_ = {};
  panels_ = at::Tensor();
  panels_key_ = {};
}

void QuantLayer::train(bool on) {
  if (on || is_training()) repack();
  torch::nn::Module::train(on);
}

void QuantLayer::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  // Module::to casts everything; scales and integers keep their dtype.
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;
  for (const at::Tensor& tensor : {weight, qweight, scale_a, scale_w})
    if (tensor.defined() && (tensor.dim() == 0 || !at::isFloatingType(tensor.scalar_type())))
      kept.emplace_back(tensor, tensor.detach());
  torch::nn::Module::to(device, dtype, non_blocking);
  for (auto& [tensor, value] : kept) tensor.set_data(value.to(device));
  anchor_ = at::empty({0}, at::TensorOptions().device(device)).requires_grad_();
  repack();
}

void QuantLayer::to(torch::Dtype dtype, bool non_blocking) { to(scale_a.device(), dtype, non_blocking); }

void QuantLayer::to(torch::Device device, bool non_blocking) {
  torch::nn::Module::to(device, non_blocking);
  anchor_ = at::empty({0}, at::TensorOptions().device(device)).requires_grad_();
  repack();
}

/// Makes current_ the packed form of the weight as it is.
void QuantLayer::refresh() {
  if (!weight.defined()) {
    current_ = {qweight, scale_w};
    return;
  }
  const Key key = key_of(weight);
  if (current_.qweight.defined() && key == weight_key_) return;
  const at::NoGradGuard no_grad;
  current_ = pack();
  weight_key_ = key;
  if (qweight.defined()) parameters_["qweight"] = qweight = current_.qweight;
}

at::Tensor QuantLayer::opt_weight() {
  if (is_training() && weight.defined()) return weight;
  refresh();
  return current_.qweight;
}

QuantLayer::Operand QuantLayer::operand() {
  if (is_training() && weight.defined()) return {weight, {}, {}, anchor_};
  refresh();
  const Key key = key_of(current_.qweight);
  if (!is_training() && !(panels_.defined() && key == panels_key_)) {
    panels_ = prepack(current_.qweight);
    panels_key_ = key;
  }
  return {current_.qweight, current_.scale_w, is_training() ? at::Tensor() : panels_, {}};
}

void QuantLayer::ready_activation(const at::Tensor& x, double c, std::int64_t axis) {
  constexpr float floor_ratio = 0.01f;  // of the first batch's step size
  if (at::isFloatingType(x.scalar_type()) && x.dim() > std::max<std::int64_t>(axis, 0))
    TORCH_CHECK_VALUE(x.size(axis) == bias_a.size(0), "x is ", x.sizes(), " with ", x.size(axis),
                      " features, the layer has ", bias_a.size(0));
  if (!scale_ready_ && at::isFloatingType(x.scalar_type())) {
    const at::NoGradGuard no_grad;
    const bool fresh = scale_a.item<float>() == 0;
    if (fresh && !is_training()) {
      TORCH_WARN_ONCE(
          "a quantised layer takes its activation scale from a batch of the evaluation: it was not trained");
    }
    ops::init_scale_(scale_a, x, c);
    const float value = scale_a.item<float>();
    scale_ready_ = value != 0;
    if (fresh) scale_floor_ = floor_ratio * value;  // loaded scales are never touched
  }
  if (is_training() && scale_floor_ > 0) {
    const at::NoGradGuard no_grad;
    scale_a.clamp_min_(scale_floor_);
  }
}

std::map<std::string, at::Tensor> QuantLayer::packed_state() {
  std::map<std::string, at::Tensor> state;
  for (const auto& item : named_parameters(/*recurse=*/false)) state[item.key()] = item.value().detach();
  for (const auto& item : named_buffers(/*recurse=*/false)) state[item.key()] = item.value().detach();
  const at::NoGradGuard no_grad;
  const Packed packed = weight.defined() ? pack() : Packed{qweight, scale_w};
  state.erase("weight");
  state["qweight"] = packed.qweight.detach();
  state["scale_w"] = packed.scale_w.detach();
  return state;
}

}  // namespace bie::nn
