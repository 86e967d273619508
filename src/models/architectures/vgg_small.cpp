// Three stages of 3x3 convolutions with a pool behind each (Simonyan and Zisserman 2014, as nets of few bits have it).
#include <c10/util/Exception.h>

#include "models/net.h"

namespace bie::models {
namespace {

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

  runtime::Symbol trace(runtime::NetBuilder& net) const override {
    const auto& image = config().image;
    runtime::Symbol x = traced_norm(net, net.input({image[0], image[1], image[2]}));
    const std::size_t stage = convs_.size() / 3;
    for (std::size_t i = 0; i < convs_.size(); ++i) x = convs_[i]->trace(net, x, {}, (i + 1) % stage == 0 ? 2 : 1);
    return traced_linears(net, net.flatten(x));
  }

 private:
  std::vector<std::shared_ptr<Block>> convs_;
};

std::int64_t add_layers(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  TORCH_CHECK_VALUE(c.image[1] >= 8 && c.image[2] >= 8, "vgg-small wants images of at least 8x8, these are ",
                    c.image[1], "x", c.image[2]);
  std::int64_t in = c.image[0];
  for (const std::int64_t out : stages(c))
    for (std::int64_t i = 0; i < depth_of(c); ++i) {
      const std::string name = "conv" + std::to_string(layers.size());
      layers.push_back({.name = name, .in = in, .out = out, .kernel = 3, .padding = 1, .bits = c.bits});
      in = out;
    }
  return in * (c.image[1] / 8) * (c.image[2] / 8);
}

}  // namespace

extern const Architecture vgg_small;
const Architecture vgg_small = {.name = "vgg-small",
                                .depth = 2,
                                .depth_counts = "convolutions a stage",
                                .width = 128,
                                .inner = InnerLinear::where_given,
                                .deep = true,
                                .add_layers = add_layers,
                                .make = make<VggSmall>};

}  // namespace bie::models
