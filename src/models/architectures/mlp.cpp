// Linears over the flat image.
#include <c10/util/Exception.h>

#include "models/net.h"

namespace bie::models {
namespace {

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

  runtime::Symbol trace(runtime::NetBuilder& net) const override {
    runtime::Symbol x = traced_norm(net, net.input({layers().front().in}));
    for (const auto& block : blocks_) x = block->trace(net, x);
    return traced_head(net, x);
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

std::int64_t add_layers(const ModelConfig& c, std::vector<PlannedLayer>& layers) {
  TORCH_CHECK_VALUE(c.linear_bits == 0, "linear_bits is ", c.linear_bits,
                    ", but all layers of an mlp are linear: bits is their width");
  std::int64_t in = c.image[0] * c.image[1] * c.image[2];
  for (std::int64_t i = 0; i <= depth_of(c); ++i) {
    layers.push_back({.name = "block" + std::to_string(i), .in = in, .out = c.hidden, .bits = c.bits});
    in = c.hidden;
  }
  return c.hidden;
}

}  // namespace

extern const Architecture mlp;
const Architecture mlp = {.name = "mlp",
                          .depth = 3,
                          .depth_counts = "inner linears",
                          .all_linear = true,
                          .add_layers = add_layers,
                          .make = make<Mlp>};

}  // namespace bie::models
