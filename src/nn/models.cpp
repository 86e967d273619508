#include "bie/nn/models.h"

#include <ATen/core/grad_mode.h>
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

/// A linear or convolution at some bit width, BatchNorm where the model has it, PReLU.
class Block : public torch::nn::Module {
 public:
  Block(torch::nn::AnyModule full, std::shared_ptr<QuantLayer> low, torch::nn::AnyModule norm)
      : full_(std::move(full)), low_(std::move(low)), norm_(std::move(norm)) {
    if (low_)
      register_module("product", low_);
    else
      register_module("product", full_.ptr());
    if (!norm_.is_empty()) register_module("norm", norm_.ptr());
    act_ = register_module("act", torch::nn::PReLU());
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = low_ ? low_->forward(x) : full_.forward(x);
    return act_->forward(norm_.is_empty() ? y : norm_.forward(y));
  }

  const std::shared_ptr<QuantLayer>& low() const { return low_; }

 private:
  torch::nn::AnyModule full_;
  std::shared_ptr<QuantLayer> low_;
  torch::nn::AnyModule norm_;
  torch::nn::PReLU act_{nullptr};
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

std::shared_ptr<Block> conv_block(const ModelConfig& c, int bits, std::int64_t in, std::int64_t out,
                                  std::int64_t kernel) {
  torch::nn::AnyModule norm;
  if (c.norm) norm = torch::nn::AnyModule(torch::nn::BatchNorm2d(out));
  QConv2dOptions options{in, out, {kernel, kernel}};
  options.latent = c.weights != WeightForm::integer;
  options.bias = !c.norm;
  std::shared_ptr<QuantLayer> low;
  if (bits == 8) low = std::make_shared<Q8Conv2dImpl>(options);
  if (bits == 4) low = std::make_shared<Q4Conv2dImpl>(options);
  torch::nn::AnyModule full;
  if (!low) full = torch::nn::AnyModule(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).bias(!c.norm)));
  return std::make_shared<Block>(std::move(full), low, std::move(norm));
}

/// Height and width after lenet's second pooling.
std::array<std::int64_t, 2> lenet_map(const ModelConfig& c) {
  const std::int64_t h = ((c.image[1] - 4) / 2 - 4) / 2, w = ((c.image[2] - 4) / 2 - 4) / 2;
  TORCH_CHECK_VALUE(h > 0 && w > 0, "lenet wants images of at least 16x16, these are ", c.image[1], "x", c.image[2]);
  return {h, w};
}

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

class LeNet : public Classifier {
 public:
  explicit LeNet(const ModelConfig& c) : Classifier(c) {
    const std::array<std::int64_t, 2> map = lenet_map(c);
    if (c.quantise_first) input_norm_ = register_module("input_norm", torch::nn::BatchNorm2d(c.image[0]));
    conv1_ = register_module("conv1", conv_block(c, c.quantise_first ? c.bits : 32, c.image[0], 32, 5));
    conv2_ = register_module("conv2", conv_block(c, c.bits, 32, 64, 5));
    inner_ = register_module("inner", linear_block(c, c.bits, 64 * map[0] * map[1], c.hidden));
    head_ = register_module("head", torch::nn::Linear(c.hidden, c.classes));
    for (const auto& block : {conv1_, conv2_, inner_})
      if (block->low()) quant_layers_.push_back(block->low());
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = at::max_pool2d(conv1_->forward(input_norm_ ? input_norm_->forward(images) : images), 2);
    return head_->forward(inner_->forward(at::max_pool2d(conv2_->forward(x), 2).flatten(1)));
  }

 private:
  torch::nn::BatchNorm2d input_norm_{nullptr};
  std::shared_ptr<Block> conv1_, conv2_, inner_;
  torch::nn::Linear head_{nullptr};
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
  TORCH_CHECK_VALUE(c.bits == 32 || c.bits == 8 || c.bits == 4 || c.bits == 1, "bits is ", c.bits,
                    ", 32, 8, 4 or 1 is wanted");
  for (const std::int64_t size : {c.classes, c.hidden})
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 20, "a model size is ", size, ", 1 to 1048576 is wanted");
  for (const std::int64_t size : c.image)
    TORCH_CHECK_VALUE(size > 0 && size <= 1 << 12, "an image size is ", size, ", 1 to 4096 is wanted");
  TORCH_CHECK_VALUE(c.depth >= 1 && c.depth <= 1000, "depth is ", c.depth, ", 1 to 1000 is wanted");
  const std::int64_t head = c.hidden * c.classes;
  if (c.arch == "mlp") return c.image[0] * c.image[1] * c.image[2] * c.hidden + c.hidden * c.hidden * c.depth + head;
  TORCH_CHECK_VALUE(c.arch == "lenet", "the architecture is '", c.arch, "', mlp or lenet is wanted");
  TORCH_CHECK_VALUE(c.bits != 1, "lenet has no 1-bit form: there is no binary convolution yet");
  const std::array<std::int64_t, 2> map = lenet_map(c);
  return c.image[0] * 32 * 25 + 32 * 64 * 25 + 64 * map[0] * map[1] * c.hidden + head;
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
  else
    model = std::make_shared<LeNet>(c);
  if (!c.norm) keep_variance(*model);
  return model;
}

}  // namespace bie::nn
