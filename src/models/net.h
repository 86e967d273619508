// Helpers for the architectures: adding layers, the norm of the input, the head.
#pragma once

#include <torch/nn/modules/batchnorm.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "bie/models/architecture.h"
#include "models/blocks.h"
#include "models/model_plan.h"

namespace bie::models {

class Net : public Classifier {
 protected:
  explicit Net(const ModelConfig& c) : Classifier(c), plan_(plan(c)) {}

  /// The norm of the input, over `features` or channels.
  template <class BatchNorm>
  void add_input_norm(std::int64_t features) {
    if (!normalises_input(config(), plan_.front())) return;
    const auto options = torch::nn::BatchNormOptions(features).affine(learns_input_norm(config(), plan_.front()));
    input_norm_ = torch::nn::AnyModule(BatchNorm(options));
    register_module("input_norm", input_norm_.ptr());
  }

  at::Tensor normalised(const at::Tensor& x) { return models::normalised(input_norm_, x); }

  runtime::Symbol traced_norm(runtime::NetBuilder& net, runtime::Symbol x) const {
    return models::traced_norm(net, input_norm_, x);
  }

  std::shared_ptr<Block> add(const PlannedLayer& layer, Activation act, torch::nn::Module* parent = nullptr) {
    const auto block = std::make_shared<Block>(config(), layer, act);
    add_product(block->product(), block->norm());
    const std::string name = layer.name.substr(layer.name.find('.') + 1);  // "conv1" of "block0.conv1"
    return (parent != nullptr ? parent : this)->register_module(name, block);
  }

  void add_head() {
    head_ = std::make_shared<Product>(config(), plan_.back(), /*bias=*/true);
    register_module("head", head_->module());
    add_product(head_, nullptr);
  }

  at::Tensor head(const at::Tensor& x) { return head_->forward(x); }
  runtime::Symbol traced_head(runtime::NetBuilder& net, runtime::Symbol x) const { return head_->trace(net, x); }
  const std::vector<PlannedLayer>& layers() const { return plan_; }

 private:
  std::vector<PlannedLayer> plan_;
  torch::nn::AnyModule input_norm_;
  std::shared_ptr<Product> head_;
};

/// Convolutions, then linear layers over their flat features.
class ConvNet : public Net {
 protected:
  explicit ConvNet(const ModelConfig& c) : Net(c) { add_input_norm<torch::nn::BatchNorm2d>(c.image[0]); }

  /// The inner linear, where there is one, and the head.
  void add_linears() {
    const PlannedLayer& inner = layers()[layers().size() - 2];
    if (!inner.is_conv()) {
      // Without learned numbers, which the layer's bias_a and scale_a would only repeat.
      if (inner.bits == 1 && config().norm) {
        inner_norm_ = torch::nn::AnyModule(torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(inner.in).affine(false)));
        register_module("inner_norm", inner_norm_.ptr());
      }
      inner_ = add(inner, Activation::prelu);
    }
    add_head();
  }

  at::Tensor linears(const at::Tensor& features) {
    const at::Tensor x = models::normalised(inner_norm_, features);
    return head(inner_ ? inner_->forward(x) : x);
  }
  runtime::Symbol traced_linears(runtime::NetBuilder& net, runtime::Symbol features) const {
    const runtime::Symbol x = models::traced_norm(net, inner_norm_, features);
    return traced_head(net, inner_ ? inner_->trace(net, x) : x);
  }

 private:
  torch::nn::AnyModule inner_norm_;
  std::shared_ptr<Block> inner_;
};

/// Channels of three stages, each of twice the one before.
inline std::array<std::int64_t, 3> stages(const ModelConfig& c) {
  return {width_of(c), 2 * width_of(c), 4 * width_of(c)};
}

template <class T>
std::shared_ptr<Classifier> make(const ModelConfig& config) {
  return std::make_shared<T>(config);
}

}  // namespace bie::models
