#include "bie/nn/models.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "bie/nn/conv2d.h"
#include "bie/nn/linear.h"
#include "nn/named.h"

namespace bie::nn {
namespace {

enum class Act { none, relu, prelu };

/// A linear or convolution at some bit width, BatchNorm where the model has it, an activation function.
class Block : public torch::nn::Module {
 public:
  Block(torch::nn::AnyModule full, std::shared_ptr<QuantLayer> low, torch::nn::AnyModule norm, Act act = Act::prelu)
      : full_(std::move(full)), low_(std::move(low)), norm_(std::move(norm)), act_(act) {
    if (low_)
      register_module("product", low_);
    else
      register_module("product", full_.ptr());
    if (!norm_.is_empty()) register_module("norm", norm_.ptr());
    if (act_ == Act::prelu) prelu_ = register_module("act", torch::nn::PReLU());
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor product = low_ ? low_->forward(x) : full_.forward(x);
    const at::Tensor y = norm_.is_empty() ? product : norm_.forward(product);
    return act_ == Act::none ? y : act_ == Act::relu ? y.relu() : prelu_->forward(y);
  }

  const std::shared_ptr<QuantLayer>& low() const { return low_; }

 private:
  torch::nn::AnyModule full_;
  std::shared_ptr<QuantLayer> low_;
  torch::nn::AnyModule norm_;
  Act act_;
  torch::nn::PReLU prelu_{nullptr};
};

std::shared_ptr<Block> linear_block(const ModelConfig& c, int bits, std::int64_t in, std::int64_t out) {
  const bool latent = c.weights == WeightForm::floating || (c.weights == WeightForm::usual && bits > 1);
  torch::nn::AnyModule norm;
  if (c.norm) norm = torch::nn::AnyModule(torch::nn::BatchNorm1d(out));
  const QLinearOptions options{in, out, latent, !c.norm};
  std::shared_ptr<QuantLayer> low;
  if (bits == 8) low = std::make_shared<Q8LinearImpl>(options);
  if (bits == 4) low = std::make_shared<Q4LinearImpl>(options);
  if (bits == 1) low = std::make_shared<BinaryLinearImpl>(BinaryLinearOptions{in, out, latent, !c.norm});
  torch::nn::AnyModule full;
  if (!low) full = torch::nn::AnyModule(torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(!c.norm)));
  return std::make_shared<Block>(std::move(full), low, std::move(norm));
}

struct Conv {
  std::int64_t in, out, kernel, stride = 1, padding = 0;
  std::int64_t weights() const { return in * out * kernel * kernel; }
};

std::shared_ptr<Block> conv_block(const ModelConfig& c, int bits, const Conv& conv, Act act = Act::prelu) {
  torch::nn::AnyModule norm;
  if (c.norm) norm = torch::nn::AnyModule(torch::nn::BatchNorm2d(conv.out));
  QConv2dOptions options{conv.in, conv.out, {conv.kernel, conv.kernel}};
  options.stride = {conv.stride, conv.stride};
  options.padding = {conv.padding, conv.padding};
  options.latent = c.weights != WeightForm::integer;
  options.bias = !c.norm;
  std::shared_ptr<QuantLayer> low;
  if (bits == 8) low = std::make_shared<Q8Conv2dImpl>(options);
  if (bits == 4) low = std::make_shared<Q4Conv2dImpl>(options);
  torch::nn::AnyModule full;
  if (!low)
    full = torch::nn::AnyModule(torch::nn::Conv2d(torch::nn::Conv2dOptions(conv.in, conv.out, conv.kernel)
                                                      .stride(conv.stride)
                                                      .padding(conv.padding)
                                                      .bias(!c.norm)));
  return std::make_shared<Block>(std::move(full), low, std::move(norm), act);
}

/// What a convolutional net multiplies, from the first convolution to the features of its linear layers.
struct Plan {
  std::vector<Conv> convs;
  std::int64_t features;
};

Plan lenet_plan(const ModelConfig& c) {
  const std::int64_t h = ((c.image[1] - 4) / 2 - 4) / 2, w = ((c.image[2] - 4) / 2 - 4) / 2;
  TORCH_CHECK_VALUE(h > 0 && w > 0, "lenet wants images of at least 16x16, these are ", c.image[1], "x", c.image[2]);
  return {{{c.image[0], 32, 5}, {32, 64, 5}}, 64 * h * w};
}

Plan vgg_plan(const ModelConfig& c) {
  TORCH_CHECK_VALUE(c.image[1] >= 8 && c.image[2] >= 8, "vgg-small wants images of at least 8x8, these are ",
                    c.image[1], "x", c.image[2]);
  Plan plan{{}, 512 * (c.image[1] / 8) * (c.image[2] / 8)};
  std::int64_t in = c.image[0];
  for (const std::int64_t out : {128, 128, 256, 256, 512, 512}) {
    plan.convs.push_back({.in = in, .out = out, .kernel = 3, .padding = 1});
    in = out;
  }
  return plan;
}

Plan resnet_plan(const ModelConfig& c) {
  Plan plan{{{.in = c.image[0], .out = 16, .kernel = 3, .padding = 1}}, 64};
  std::int64_t in = 16;
  for (const std::int64_t out : {16, 32, 64})
    for (int i = 0; i < 6; ++i) {
      plan.convs.push_back({.in = in, .out = out, .kernel = 3, .stride = in == out ? 1 : 2, .padding = 1});
      in = out;
    }
  return plan;
}

Plan plan_of(const ModelConfig& c) {
  if (c.arch == "lenet") return lenet_plan(c);
  if (c.arch == "vgg-small") return vgg_plan(c);
  TORCH_CHECK_VALUE(c.arch == "resnet20", "the architecture is '", c.arch,
                    "', mlp, lenet, vgg-small or resnet20 is wanted");
  return resnet_plan(c);
}

/// The width of the linear layer between the features and the head; 0 where there is none.
int inner_bits(const ModelConfig& c) { return c.linear_bits == 0 && c.arch == "lenet" ? c.bits : c.linear_bits; }

class Mlp : public Classifier {
 public:
  explicit Mlp(const ModelConfig& c) : Classifier(c) {
    const std::int64_t pixels = c.image[0] * c.image[1] * c.image[2];
    if (c.quantise_first) input_norm_ = register_module("input_norm", torch::nn::BatchNorm1d(pixels));
    for (std::int64_t i = 0; i <= c.depth; ++i) {
      const int bits = i > 0 || c.quantise_first ? c.bits : 32;
      blocks_.push_back(
          register_module("block" + std::to_string(i), linear_block(c, bits, i == 0 ? pixels : c.hidden, c.hidden)));
      if (blocks_.back()->low()) quant_layers_.push_back(blocks_.back()->low());
    }
    head_ = register_module("head", torch::nn::Linear(c.hidden, c.classes));
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = images.flatten(1);
    if (input_norm_) x = input_norm_->forward(x);
    for (const auto& block : blocks_) x = block->forward(x);
    return head_->forward(x);
  }

 private:
  torch::nn::BatchNorm1d input_norm_{nullptr};
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::Linear head_{nullptr};
};

/// Convolutions, then linear layers over their flat features.
class ConvNet : public Classifier {
 protected:
  explicit ConvNet(const ModelConfig& c) : Classifier(c) {}

  std::shared_ptr<Block> add(const std::string& name, const std::shared_ptr<Block>& block,
                             torch::nn::Module* parent = nullptr) {
    if (block->low()) quant_layers_.push_back(block->low());
    return (parent != nullptr ? parent : this)->register_module(name, block);
  }

  void add_linears(std::int64_t features) {
    const ModelConfig& c = config();
    const int bits = inner_bits(c);
    // Without learned numbers, which the layer's bias_a and scale_a would only repeat.
    if (bits == 1 && c.norm)
      inner_norm_ =
          register_module("inner_norm", torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(features).affine(false)));
    if (bits != 0) inner_ = add("inner", linear_block(c, bits, features, c.hidden));
    head_ = register_module("head", torch::nn::Linear(inner_ ? c.hidden : features, c.classes));
  }

  at::Tensor linears(const at::Tensor& features) {
    const at::Tensor x = inner_norm_ ? inner_norm_->forward(features) : features;
    return head_->forward(inner_ ? inner_->forward(x) : x);
  }

 private:
  torch::nn::BatchNorm1d inner_norm_{nullptr};
  std::shared_ptr<Block> inner_;
  torch::nn::Linear head_{nullptr};
};

class LeNet : public ConvNet {
 public:
  explicit LeNet(const ModelConfig& c) : ConvNet(c) {
    const Plan plan = lenet_plan(c);
    if (c.quantise_first) input_norm_ = register_module("input_norm", torch::nn::BatchNorm2d(c.image[0]));
    conv1_ = add("conv1", conv_block(c, c.quantise_first ? c.bits : 32, plan.convs[0]));
    conv2_ = add("conv2", conv_block(c, c.bits, plan.convs[1]));
    add_linears(plan.features);
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = at::max_pool2d(conv1_->forward(input_norm_ ? input_norm_->forward(images) : images), 2);
    return linears(at::max_pool2d(conv2_->forward(x), 2).flatten(1));
  }

 private:
  torch::nn::BatchNorm2d input_norm_{nullptr};
  std::shared_ptr<Block> conv1_, conv2_;
};

/// A net whose saved form carries the mean and the deviation of the images it was trained on.
class NormalisedNet : public ConvNet {
 protected:
  explicit NormalisedNet(const ModelConfig& c) : ConvNet(c) {
    input_norm_ =
        register_module("input_norm", torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(c.image[0]).affine(false)));
  }

  torch::nn::BatchNorm2d input_norm_{nullptr};
};

class VggSmall : public NormalisedNet {
 public:
  explicit VggSmall(const ModelConfig& c) : NormalisedNet(c) {
    const Plan plan = vgg_plan(c);
    for (std::size_t i = 0; i < plan.convs.size(); ++i) {
      const int bits = i > 0 || c.quantise_first ? c.bits : 32;
      convs_.push_back(add("conv" + std::to_string(i), conv_block(c, bits, plan.convs[i], Act::relu)));
    }
    add_linears(plan.features);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = input_norm_->forward(images);
    for (std::size_t i = 0; i < convs_.size(); ++i) {
      x = convs_[i]->forward(x);
      if (i % 2 == 1) x = at::max_pool2d(x, 2);
    }
    return linears(x.flatten(1));
  }

 private:
  std::vector<std::shared_ptr<Block>> convs_;
};

class ResNet20 : public NormalisedNet {
 public:
  explicit ResNet20(const ModelConfig& c) : NormalisedNet(c) {
    const Plan plan = resnet_plan(c);
    conv_ = add("conv", conv_block(c, c.quantise_first ? c.bits : 32, plan.convs[0], Act::relu));
    for (std::size_t i = 1; i < plan.convs.size(); i += 2) {
      const auto parent =
          register_module("block" + std::to_string(i / 2), std::make_shared<torch::nn::Module>("Residual"));
      blocks_.push_back({plan.convs[i], add("conv1", conv_block(c, c.bits, plan.convs[i], Act::relu), parent.get()),
                         add("conv2", conv_block(c, c.bits, plan.convs[i + 1], Act::none), parent.get())});
    }
    add_linears(plan.features);
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = conv_->forward(input_norm_->forward(images));
    for (const Residual& block : blocks_)
      x = (block.second->forward(block.first->forward(x)) + shortcut(x, block.shape)).relu();
    return linears(x.mean({2, 3}));
  }

 private:
  struct Residual {
    Conv shape;
    std::shared_ptr<Block> first, second;
  };

  static at::Tensor shortcut(const at::Tensor& x, const Conv& shape) {
    if (shape.in == shape.out) return x;
    const at::Tensor fewer = x.slice(2, 0, std::nullopt, shape.stride).slice(3, 0, std::nullopt, shape.stride);
    return at::constant_pad_nd(fewer, {0, 0, 0, 0, 0, shape.out - shape.in});
  }

  std::shared_ptr<Block> conv_;
  std::vector<Residual> blocks_;
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

std::int64_t weight_count(const ModelConfig& c) {
  const auto check_width = [](const char* name, int bits) {
    TORCH_CHECK_VALUE(bits == 32 || bits == 8 || bits == 4 || bits == 1, name, " is ", bits,
                      ", 32, 8, 4 or 1 is wanted");
  };
  check_width("bits", c.bits);
  if (c.linear_bits != 0) check_width("linear_bits", c.linear_bits);
  for (const std::int64_t size : {c.classes, c.hidden})
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 20, "a model size is ", size, ", 1 to 1048576 is wanted");
  for (const std::int64_t size : c.image)
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 12, "an image size is ", size, ", 1 to 4096 is wanted");
  TORCH_CHECK_VALUE(c.depth >= 1 && c.depth <= 1000, "depth is ", c.depth, ", 1 to 1000 is wanted");
  if (c.arch == "mlp") {
    TORCH_CHECK_VALUE(c.linear_bits == 0, "linear_bits is ", c.linear_bits,
                      ", but all layers of an mlp are linear: bits is their width");
    return c.image[0] * c.image[1] * c.image[2] * c.hidden + c.hidden * c.hidden * c.depth + c.hidden * c.classes;
  }
  const Plan plan = plan_of(c);
  TORCH_CHECK_VALUE(c.bits != 1, c.arch, " has no 1-bit form: there is no binary convolution yet");
  TORCH_CHECK_VALUE(c.norm || c.arch == "lenet", c.arch, " has no form without BatchNorm");
  const bool inner = inner_bits(c) != 0;
  std::int64_t count = inner ? plan.features * c.hidden + c.hidden * c.classes : plan.features * c.classes;
  for (const Conv& conv : plan.convs) count += conv.weights();
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
  else
    model = std::make_shared<ResNet20>(c);
  if (!c.norm) keep_variance(*model);
  return model;
}

}  // namespace bie::nn
