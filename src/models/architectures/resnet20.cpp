// Three stages of residual blocks of two 3x3 convolutions (He et al. 2016).
#include <ATen/ops/constant_pad_nd.h>

#include "models/net.h"

namespace bie::models {
namespace {

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
    return linears(channel_means(x, is_training()));
  }

  runtime::Symbol trace(runtime::NetBuilder& net) const override {
    const auto& image = config().image;
    runtime::Symbol x = conv_->trace(net, traced_norm(net, net.input({image[0], image[1], image[2]})));
    for (const Residual& block : blocks_) {
      const PlannedLayer& shape = block.shape;
      const runtime::Symbol past = shape.in == shape.out ? x : net.strided_planes(x, shape.stride, shape.out);
      const runtime::Symbol y = block.first->trace(net, x, block.each ? std::optional(past) : std::nullopt);
      x = block.second->trace(net, y, block.each ? y : past);
    }
    return traced_linears(net, net.plane_means(x));
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

std::int64_t add_layers(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  std::int64_t in = width_of(c), block = 0;
  layers.push_back({.name = "conv", .in = c.image[0], .out = in, .kernel = 3, .padding = 1, .bits = c.bits});
  for (const std::int64_t out : stages(c))
    for (std::int64_t i = 0; i < depth_of(c); ++i, ++block) {
      const std::string name = "block" + std::to_string(block);
      const std::int64_t stride = in == out ? 1 : 2;
      layers.push_back({name + ".conv1", in, out, 3, stride, 1, c.bits});
      layers.push_back({name + ".conv2", out, out, 3, 1, 1, c.bits});
      in = out;
    }
  return in;
}

}  // namespace

extern const Architecture resnet20;
const Architecture resnet20 = {.name = "resnet20",
                               .depth = 3,
                               .depth_counts = "residual blocks a stage",
                               .width = 16,
                               .inner = InnerLinear::where_given,
                               .deep = true,
                               .narrow = true,
                               .add_layers = add_layers,
                               .make = make<ResNet20>};

}  // namespace bie::models
