#include "bie/nn/models.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/batchnorm.h>

#include <cmath>

#include "nn/blocks.h"
#include "nn/model_plan.h"
#include "nn/named.h"

namespace bie::nn {
namespace {

/// What the architectures share: how layers are added, the norm of the input, the head.
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

  at::Tensor normalised(const at::Tensor& x) { return nn::normalised(input_norm_, x); }

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
  const std::vector<PlannedLayer>& layers() const { return plan_; }

 private:
  std::vector<PlannedLayer> plan_;
  torch::nn::AnyModule input_norm_;
  std::shared_ptr<Product> head_;
};

class Mlp : public Net {
 public:
  explicit Mlp(const ModelConfig& c) : Net(c) {
    add_input_norm<torch::nn::BatchNorm1d>(layers().front().in);
    for (std::size_t i = 0; i + 1 < layers().size(); ++i) blocks_.push_back(add(layers()[i], Activation::prelu));
    add_head();
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = normalised(images.flatten(1));
    for (const auto& block : blocks_) x = block->forward(x);
    return head(x);
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
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
    const at::Tensor x = nn::normalised(inner_norm_, features);
    return head(inner_ ? inner_->forward(x) : x);
  }

 private:
  torch::nn::AnyModule inner_norm_;
  std::shared_ptr<Block> inner_;
};

class LeNet : public ConvNet {
 public:
  explicit LeNet(const ModelConfig& c) : ConvNet(c) {
    conv1_ = add(layers()[0], Activation::prelu);
    conv2_ = add(layers()[1], Activation::prelu);
    add_linears();
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = conv1_->forward(normalised(images), /*shortcut=*/{}, /*pool=*/2);
    return linears(conv2_->forward(x, /*shortcut=*/{}, /*pool=*/2).flatten(1));
  }

 private:
  std::shared_ptr<Block> conv1_, conv2_;
};

class VggSmall : public ConvNet {
 public:
  explicit VggSmall(const ModelConfig& c) : ConvNet(c) {
    for (const PlannedLayer& layer : layers())
      if (layer.is_conv()) convs_.push_back(add(layer, Activation::relu));
    add_linears();
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = normalised(images);
    const std::size_t stage = convs_.size() / 3;
    for (std::size_t i = 0; i < convs_.size(); ++i)
      x = convs_[i]->forward(x, /*shortcut=*/{}, /*pool=*/(i + 1) % stage == 0 ? 2 : 1);
    return linears(x.flatten(1));
  }

 private:
  std::vector<std::shared_ptr<Block>> convs_;
};

class ResNet20 : public ConvNet {
 public:
  explicit ResNet20(const ModelConfig& c) : ConvNet(c) {
    conv_ = add(layers()[0], Activation::relu);
    for (std::size_t i = 1; i + 1 < layers().size() && layers()[i].is_conv(); i += 2) {
      const PlannedLayer &first = layers()[i], &second = layers()[i + 1];
      const auto parent =
          register_module(first.name.substr(0, first.name.find('.')), std::make_shared<torch::nn::Module>("Residual"));
      const bool binary = first.bits == 1 && second.bits == 1;
      const Activation act = binary ? Activation::prelu : Activation::relu;
      blocks_.push_back({first, binary, add(first, act, parent.get()), add(second, act, parent.get())});
    }
    add_linears();
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = conv_->forward(normalised(images));
    for (const Residual& block : blocks_) {
      const at::Tensor past = shortcut(x, block.shape);
      const at::Tensor y = block.first->forward(x, block.each ? past : at::Tensor());
      x = block.second->forward(y, block.each ? y : past);
    }
    return linears(x.mean({2, 3}));
  }

 private:
  struct Residual {
    PlannedLayer shape;
    bool each;  ///< a shortcut round each convolution, whose signs lose how large its input was (Liu et al. 2018)
    std::shared_ptr<Block> first, second;
  };

  static at::Tensor shortcut(const at::Tensor& x, const PlannedLayer& shape) {
    if (shape.in == shape.out) return x;
    const at::Tensor fewer = x.slice(2, 0, std::nullopt, shape.stride).slice(3, 0, std::nullopt, shape.stride);
    return at::constant_pad_nd(fewer, {0, 0, 0, 0, 0, shape.out - shape.in});
  }

  std::shared_ptr<Block> conv_;
  std::vector<Residual> blocks_;
};

/// The layers of a description, one after the other.
class CustomNet : public Net {
 public:
  explicit CustomNet(const ModelConfig& c) : Net(c) {
    if (c.layers.front().type == LayerSpec::Type::linear)
      add_input_norm<torch::nn::BatchNorm1d>(layers().front().in);
    else
      add_input_norm<torch::nn::BatchNorm2d>(c.image[0]);
    std::size_t next = 0;
    for (const LayerSpec& spec : c.layers)
      blocks_.push_back(spec.type == LayerSpec::Type::pool ? nullptr : add(layers()[next++], spec.activation));
    add_head();
  }

  at::Tensor forward(const at::Tensor& images) override {
    const std::vector<LayerSpec>& specs = config().layers;
    at::Tensor x = normalised(specs.front().type == LayerSpec::Type::linear ? images.flatten(1) : images);
    const auto is = [&](std::size_t i, LayerSpec::Type type) { return i < specs.size() && specs[i].type == type; };
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (is(i, LayerSpec::Type::pool)) {
        x = at::max_pool2d(x, specs[i].size);
      } else if (is(i, LayerSpec::Type::conv) && is(i + 1, LayerSpec::Type::pool)) {
        x = blocks_[i]->forward(x, /*shortcut=*/{}, specs[i + 1].size);
        ++i;
      } else {
        x = blocks_[i]->forward(is(i, LayerSpec::Type::linear) ? x.flatten(1) : x);
      }
    }
    return head(x.flatten(1));
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;  ///< none for a pool
};

constexpr Named<WeightForm> weight_forms[] = {
    {WeightForm::usual, "usual"}, {WeightForm::floating, "float"}, {WeightForm::integer, "int8"}};

}  // namespace

const char* name(WeightForm form) { return name_of(weight_forms, form); }

WeightForm weight_form_of(const std::string& text) { return value_of(weight_forms, "the weights' form", text); }

std::int64_t Classifier::quantised_count() const {
  std::int64_t count = 0;
  for (const auto& layer : quant_layers_) count += layer->weight_count();
  return count;
}

std::vector<ProductLayer> Classifier::products() const {
  std::vector<ProductLayer> products;
  for (const Member& member : members_)
    products.push_back({member.product->name(), member.product->module(), member.norm});
  return products;
}

void Classifier::set_probe(const Probe& probe) {
  for (const Member& member : members_) member.product->set_probe(probe);
}

void Classifier::add_product(const std::shared_ptr<Product>& product, const std::shared_ptr<torch::nn::Module>& norm) {
  members_.push_back({product, norm});
  if (product->low()) quant_layers_.push_back(product->low());
}

std::vector<std::string> layer_names(const ModelConfig& c) {
  std::vector<std::string> names;
  for (const PlannedLayer& layer : plan(c)) names.push_back(layer.name);
  return names;
}

std::int64_t weight_count(const ModelConfig& c) {
  std::int64_t count = 0;
  for (const PlannedLayer& layer : plan(c)) count += layer.weights();
  return count;
}

namespace {

/// Layers start with weights in +-1/sqrt(k), which shrinks a signal threefold; a BatchNorm makes up for it. Without
/// one, weights start in +-sqrt(6 / ((1 + 0.25^2) * k)), which keeps it through a PReLU (He et al. 2015).
void keep_variance(torch::nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters())
    if (item.key().ends_with("product.weight")) item.value().mul_(std::sqrt(6 / 1.0625));
}

}  // namespace

std::shared_ptr<Classifier> make_model(const ModelConfig& c) {
  weight_count(c);  // refuses what cannot be built
  std::shared_ptr<Classifier> model;
  if (c.arch == "mlp")
    model = std::make_shared<Mlp>(c);
  else if (c.arch == "lenet")
    model = std::make_shared<LeNet>(c);
  else if (c.arch == "vgg-small")
    model = std::make_shared<VggSmall>(c);
  else if (c.arch == "resnet20")
    model = std::make_shared<ResNet20>(c);
  else
    model = std::make_shared<CustomNet>(c);
  if (!c.norm) keep_variance(*model);
  return model;
}

}  // namespace bie::nn
