// Two 5x5 convolutions, each with a pool, and an inner linear (LeCun et al. 1998).
#include <c10/util/Exception.h>

#include "models/net.h"

namespace bie::models {
namespace {

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

  runtime::Symbol trace(runtime::NetBuilder& net) const override {
    const auto& image = config().image;
    const runtime::Symbol x = conv1_->trace(net, traced_norm(net, net.input({image[0], image[1], image[2]})), {}, 2);
    return traced_linears(net, net.flatten(conv2_->trace(net, x, {}, 2)));
  }

 private:
  std::shared_ptr<Block> conv1_, conv2_;
};

std::int64_t add_layers(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  const std::int64_t h = ((c.image[1] - 4) / 2 - 4) / 2, w = ((c.image[2] - 4) / 2 - 4) / 2;
  TORCH_CHECK_VALUE(h > 0 && w > 0, "lenet wants images of at least 16x16, these are ", c.image[1], "x", c.image[2]);
  const std::int64_t width = width_of(c);
  layers.push_back({.name = "conv1", .in = c.image[0], .out = width, .kernel = 5, .bits = c.bits});
  layers.push_back({.name = "conv2", .in = width, .out = 2 * width, .kernel = 5, .bits = c.bits});
  return 2 * width * h * w;
}

}  // namespace

extern const Architecture lenet;
const Architecture lenet = {
    .name = "lenet", .width = 32, .inner = InnerLinear::always, .add_layers = add_layers, .make = make<LeNet>};

}  // namespace bie::models
