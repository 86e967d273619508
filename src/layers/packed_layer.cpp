#include "bie/layers/packed_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <utility>

namespace bie::layers {
namespace {

std::vector<std::int64_t> float_shape(PackedWeight::Form form, const std::vector<std::int64_t>& shape) {
  return form == PackedWeight::Form::codes ? std::vector{shape[1], shape[0]} : shape;
}

}  // namespace

at::Tensor PackedWeight::anchor() {
  if (!anchor_.defined()) {
    const c10::InferenceMode off(false);
    anchor_ = at::zeros({1}, at::TensorOptions().device(tensors.qweight.device())).expand(shape_).requires_grad_();
  }
  return anchor_;
}

void PackedWeight::set_gradient(const at::Tensor& gradient) {
  TORCH_CHECK_VALUE(!gradient.defined() || gradient.sizes() == at::IntArrayRef(shape_),
                    "the gradient of a packed weight: expected ", at::IntArrayRef(shape_), ", got ", gradient.sizes());
  if (gradient.defined() || anchor_.defined()) anchor().mutable_grad() = gradient;
}

PackedLayer::PackedLayer(PackedWeight::Form form, std::vector<std::int64_t> shape) : shape_(std::move(shape)) {
  for (const std::int64_t size : shape_)
    TORCH_CHECK_VALUE(size > 0, "a quantised layer wants positive sizes, its weight would be ",
                      at::IntArrayRef(shape_));
  weight_ = std::make_shared<PackedWeight>(form, float_shape(form, shape_));
}

void PackedLayer::set_words(const at::Tensor& words) {
  qweight = register_parameter("qweight", words, /*requires_grad=*/false);
  weight_->tensors.qweight = qweight;
}

at::Tensor PackedLayer::anchor() {
  if (!trainable_ || !is_training() || !at::GradMode::is_enabled()) return {};
  weight_->awaits_gradient = true;
  return weight_->anchor();
}

StateDict PackedLayer::state(bool /*packed*/) const {
  StateDict state;
  for (const auto& item : named_parameters(/*recurse=*/false)) state[item.key()] = item.value().detach();
  for (const auto& item : named_buffers(/*recurse=*/false))
    if (item.value().defined()) state[item.key()] = item.value().detach();
  return state;
}

}  // namespace bie::layers
