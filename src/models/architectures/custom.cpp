// The layers of a description, one after the other.
#include <ATen/ops/max_pool2d.h>
#include <c10/util/Exception.h>

#include "models/net.h"

namespace bie::models {
namespace {

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

  runtime::Symbol trace(runtime::NetBuilder& net) const override {
    const std::vector<LayerSpec>& specs = config().layers;
    const auto is = [&](std::size_t i, LayerSpec::Type type) { return i < specs.size() && specs[i].type == type; };
    const auto& image = config().image;
    runtime::Symbol x = net.input({image[0], image[1], image[2]});
    if (is(0, LayerSpec::Type::linear)) x = net.flatten(x);
    x = traced_norm(net, x);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (is(i, LayerSpec::Type::pool)) {
        x = net.tail(x, {.scale = {}, .shift = {}, .pool = specs[i].size});
      } else if (is(i, LayerSpec::Type::conv) && is(i + 1, LayerSpec::Type::pool)) {
        x = blocks_[i]->trace(net, x, {}, specs[i + 1].size);
        ++i;
      } else {
        x = blocks_[i]->trace(net, is(i, LayerSpec::Type::linear) ? net.flatten(x) : x);
      }
    }
    return traced_head(net, net.flatten(x));
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;  ///< none for a pool
};

std::int64_t add_layers(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  std::int64_t channels = c.image[0], height = c.image[1], width = c.image[2];
  bool flat = false;
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const LayerSpec& spec = c.layers[i];
    const std::string place = c10::str("layers[", i, "]");
    const int bits = spec.bits != 0 ? spec.bits : c.bits;
    if (spec.type == LayerSpec::Type::linear) {
      layers.push_back(
          {.name = "layer" + std::to_string(i), .in = channels * height * width, .out = spec.out, .bits = bits});
      channels = spec.out;
      height = width = 1;
      flat = true;
      continue;
    }
    const bool pool = spec.type == LayerSpec::Type::pool;
    TORCH_CHECK_VALUE(!flat, place, " is a ", pool ? "pool" : "conv", " behind a linear, which leaves no image");
    const std::int64_t high = height + 2 * spec.padding, wide = width + 2 * spec.padding;
    TORCH_CHECK_VALUE(spec.size <= high && spec.size <= wide, place, " takes squares of ", spec.size,
                      ", what reaches it is ", height, "x", width, " with a border of ", spec.padding);
    if (pool) {
      height /= spec.size;
      width /= spec.size;
      continue;
    }
    layers.push_back({.name = "layer" + std::to_string(i),
                      .in = channels,
                      .out = spec.out,
                      .kernel = spec.size,
                      .stride = spec.stride,
                      .padding = spec.padding,
                      .bits = bits});
    channels = spec.out;
    height = (high - spec.size) / spec.stride + 1;
    width = (wide - spec.size) / spec.stride + 1;
  }
  TORCH_CHECK_VALUE(!layers.empty(), "the net has no layers");
  return channels * height * width;
}

}  // namespace

extern const Architecture custom;
const Architecture custom = {.name = "custom", .described = true, .add_layers = add_layers, .make = make<CustomNet>};

}  // namespace bie::models
