#include "bie/nn/models.h"

#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "bie/nn/conv2d.h"
#include "bie/nn/linear.h"

namespace bie::nn {
namespace {

/// A linear or convolution at some bit width, BatchNorm, PReLU.
class Block : public torch::nn::Module {
 public:
  Block(torch::nn::AnyModule full, std::shared_ptr<QuantLayer> low, torch::nn::AnyModule norm)
      : full_(std::move(full)), low_(std::move(low)), norm_(std::move(norm)) {
    if (low_)
      register_module("product", low_);
    else
      register_module("product", full_.ptr());
    register_module("norm", norm_.ptr());
    act_ = register_module("act", torch::nn::PReLU());
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor y = low_ ? low_->forward(x) : full_.forward(x);
    return act_->forward(norm_.forward(y));
  }

  const std::shared_ptr<QuantLayer>& low() const { return low_; }

 private:
  torch::nn::AnyModule full_;
  std::shared_ptr<QuantLayer> low_;
  torch::nn::AnyModule norm_;
  torch::nn::PReLU act_{nullptr};
};

std::shared_ptr<Block> linear_block(int bits, std::int64_t in, std::int64_t out) {
  const torch::nn::AnyModule norm{torch::nn::BatchNorm1d(out)};
  switch (bits) {
    case 8: return std::make_shared<Block>(torch::nn::AnyModule(), std::make_shared<Q8LinearImpl>(in, out), norm);
    case 4: return std::make_shared<Block>(torch::nn::AnyModule(), std::make_shared<Q4LinearImpl>(in, out), norm);
    case 1: return std::make_shared<Block>(torch::nn::AnyModule(), std::make_shared<BinaryLinearImpl>(in, out), norm);
    default: break;
  }
  const torch::nn::AnyModule full{torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false))};
  return std::make_shared<Block>(full, nullptr, norm);
}

std::shared_ptr<Block> conv_block(int bits, std::int64_t in, std::int64_t out, std::int64_t kernel) {
  const torch::nn::AnyModule norm{torch::nn::BatchNorm2d(out)};
  const QConv2dOptions options{in, out, {kernel, kernel}};
  switch (bits) {
    case 8: return std::make_shared<Block>(torch::nn::AnyModule(), std::make_shared<Q8Conv2dImpl>(options), norm);
    case 4: return std::make_shared<Block>(torch::nn::AnyModule(), std::make_shared<Q4Conv2dImpl>(options), norm);
    default: break;
  }
  const torch::nn::AnyModule full{torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).bias(false))};
  return std::make_shared<Block>(full, nullptr, norm);
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
    for (std::int64_t i = 0; i <= c.depth; ++i) {
      const int bits = i == 0 ? 32 : c.bits;
      blocks_.push_back(
          register_module("block" + std::to_string(i), linear_block(bits, i == 0 ? pixels : c.hidden, c.hidden)));
      if (blocks_.back()->low()) quant_layers_.push_back(blocks_.back()->low());
    }
    head_ = register_module("head", torch::nn::Linear(c.hidden, c.classes));
  }

  at::Tensor forward(const at::Tensor& images) override {
    at::Tensor x = images.flatten(1);
    for (const auto& block : blocks_) x = block->forward(x);
    return head_->forward(x);
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
  torch::nn::Linear head_{nullptr};
};

class LeNet : public Classifier {
 public:
  explicit LeNet(const ModelConfig& c) : Classifier(c) {
    const std::array<std::int64_t, 2> map = lenet_map(c);
    conv1_ = register_module("conv1", conv_block(32, c.image[0], 32, 5));
    conv2_ = register_module("conv2", conv_block(c.bits, 32, 64, 5));
    inner_ = register_module("inner", linear_block(c.bits, 64 * map[0] * map[1], c.hidden));
    head_ = register_module("head", torch::nn::Linear(c.hidden, c.classes));
    for (const auto& block : {conv2_, inner_})
      if (block->low()) quant_layers_.push_back(block->low());
  }

  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor x = at::max_pool2d(conv1_->forward(images), 2);
    return head_->forward(inner_->forward(at::max_pool2d(conv2_->forward(x), 2).flatten(1)));
  }

 private:
  std::shared_ptr<Block> conv1_, conv2_, inner_;
  torch::nn::Linear head_{nullptr};
};

}  // namespace

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

std::shared_ptr<Classifier> make_model(const ModelConfig& c) {
  weight_count(c);  // refuses what cannot be built
  if (c.arch == "mlp") return std::make_shared<Mlp>(c);
  return std::make_shared<LeNet>(c);
}

}  // namespace bie::nn
