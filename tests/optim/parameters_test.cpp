// optim::parameters: every kind of layer's weight with its bits and scale, and nothing that training does not move.
#include "bie/optim/parameters.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <map>

#include "bie/layers/conv2d.h"
#include "bie/layers/linear.h"

namespace bie::optim::test {
namespace {

struct Net : torch::nn::Module {
  Net() {
    binary = register_module("binary", layers::BinaryLinear(7, 5));
    latent = register_module("latent", layers::BinaryLinear(layers::BinaryLinearOptions{7, 5, true}));
    q8 = register_module("q8", layers::Q8Linear(layers::QLinearOptions{7, 5, false}));
    q4 = register_module(
        "q4", layers::Q4Conv2d(layers::QConv2dOptions{
                  .in_channels = 3, .out_channels = 5, .kernel_size = {3, 3}, .latent = false, .bias = true}));
    head = register_module("head", torch::nn::Linear(5, 3));
  }
  layers::BinaryLinear binary{nullptr}, latent{nullptr};
  layers::Q8Linear q8{nullptr};
  layers::Q4Conv2d q4{nullptr};
  torch::nn::Linear head{nullptr};
};

std::map<std::string, Param> by_name(const std::vector<Param>& params) {
  std::map<std::string, Param> found;
  for (const Param& param : params) EXPECT_TRUE(found.emplace(param.name, param).second) << param.name;
  return found;
}

TEST(Parameters, AreThoseThatTrain) {
  Net net;
  layers::prepare_layers(net);
  const auto params = by_name(parameters(net));
  std::vector<std::string> names;
  for (const auto& [name, param] : params) names.push_back(name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"binary.bias_a", "binary.scale_a", "binary.weight", "head.bias", "head.weight",
                                      "latent.bias_a", "latent.scale_a", "latent.weight", "q4.bias", "q4.bias_a",
                                      "q4.scale_a", "q4.weight", "q8.bias_a", "q8.scale_a", "q8.weight"}));
  EXPECT_EQ(params.at("binary.weight").bits, 1);
  EXPECT_EQ(params.at("q8.weight").bits, 8);
  EXPECT_EQ(params.at("q4.weight").bits, 4);
  EXPECT_TRUE(params.at("q4.weight").scale_w.is_same(net.q4->scale_w));
  for (const char* name : {"binary", "q8", "q4"})
    EXPECT_EQ(params.at(std::string(name) + ".weight").tensor.scalar_type(), at::kChar) << name;
  EXPECT_TRUE(params.at("latent.weight").tensor.is_same(net.latent->weight));
  EXPECT_NO_THROW(DiodeMix({{parameters(net), {}}}));
}

TEST(Parameters, TakenBeforeALayerPreparesItselfAreTheSameTensors) {
  Net net;
  const auto before = by_name(parameters(net));
  layers::prepare_layers(net);
  const auto after = by_name(parameters(net));
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, param] : before) {
    EXPECT_TRUE(param.tensor.is_same(after.at(name).tensor)) << name;
    EXPECT_EQ(param.bits, after.at(name).bits) << name;
  }
}

TEST(Parameters, FrozenAndPackedOnesAreLeftOut) {
  Net net;
  net.head->weight.set_requires_grad(false);
  net.binary->scale_a.set_requires_grad(false);
  net.q8->set_weight_trainable(false);
  net.q4->generate_quantized_weight(true);
  const auto params = by_name(parameters(net));
  for (const char* name : {"head.weight", "binary.scale_a", "q8.weight", "q4.weight", "q4.qweight"})
    EXPECT_EQ(params.count(name), 0u) << name;
  EXPECT_EQ(params.size(), 11u);
}

TEST(Parameters, OfALayerItself) {
  layers::Q4LinearImpl layer(7, 5);
  const auto params = by_name(parameters(layer));
  EXPECT_EQ(params.size(), 3u);
  EXPECT_EQ(params.at("weight").bits, 4);
}

}  // namespace
}  // namespace bie::optim::test
