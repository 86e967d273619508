// Scales of output channels: the output and every gradient against the layer that has none, and the files.
#include <gtest/gtest.h>

#include <limits>

#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

/// A layer with scales of channels and its twin without, of the same weight, bias_a and bias.
struct Pair {
  std::shared_ptr<IntegerLayer> with, without;
  at::Tensor x, scales, bias;  ///< the latter two along the channels of an output
};

template <class Layer, class Options>
Pair pair_of(Options options, const at::Tensor& x, bool conv) {
  at::manual_seed(4);
  options.bias = true;
  Pair p{nullptr, std::make_shared<Layer>(options), x, {}, {}};
  options.channel_scales = true;
  p.with = std::make_shared<Layer>(options);
  assign(p.without->bias_a, numbers(p.without->bias_a.sizes(), 5).mul(0.1));
  run_training(*p.without, x);
  StateDict entries = p.without->state(false);
  const std::int64_t channels = p.without->weight_shape()[0];
  entries["channel_scale"] = numbers({channels}, 7).abs().add(0.25);
  const auto along = [&](const at::Tensor& values) { return conv ? values.view({1, -1, 1, 1}) : values; };
  p.scales = along(entries["channel_scale"]);
  p.bias = along(entries["bias"].clone());
  p.with->check_state(entries, "")();
  assign(p.without->bias, 0);
  return p;
}

std::vector<Pair> pairs() {
  std::vector<Pair> pairs;
  for (const bool latent : {true, false}) {
    const QLinearOptions linear{.in_features = 33, .out_features = 7, .latent = latent};
    pairs.push_back(pair_of<Q8LinearImpl>(linear, numbers({2, 3, 33}, 1), false));
    pairs.push_back(pair_of<Q4LinearImpl>(linear, numbers({5, 33}, 1), false));
    QConv2dOptions conv{3, 5, {3, 2}, {2, 1}, {1, 0}};
    conv.latent = latent;
    pairs.push_back(pair_of<Q8Conv2dImpl>(conv, numbers({2, 3, 7, 6}, 1), true));
    pairs.push_back(pair_of<Q4Conv2dImpl>(conv, numbers({2, 3, 7, 6}, 1), true));
  }
  return pairs;
}

TEST(ChannelScale, TheOutputIsMultipliedBeforeTheBias) {
  for (const Pair& p : pairs()) {
    for (const bool training : {true, false}) {
      p.with->train(training);
      p.without->train(training);
      EXPECT_TRUE(run(*p.with, p.x).equal(run(*p.without, p.x).mul(p.scales).add(p.bias))) << p.with->kind();
    }
    const at::Tensor y = run_eval(*p.with, p.x);
    p.with->generate_quantized_weight(true);
    EXPECT_TRUE(run_eval(*p.with, p.x).equal(y)) << "packed";
  }
}

TEST(ChannelScale, GradientsAreThoseOfTheScaledOutput) {
  for (const Pair& p : pairs()) {
    at::Tensor gradients[2];
    for (const auto& layer : {p.with, p.without}) {
      layer->train();
      const at::Tensor x = p.x.clone().requires_grad_(), y = layer->forward(x);
      const at::Tensor g = numbers(y.sizes(), 2);
      y.backward(layer == p.with ? g : g * p.scales);
      gradients[layer == p.with] = x.grad();
    }
    EXPECT_TRUE(gradients[0].ne(0).any().item<bool>());
    EXPECT_TRUE(gradients[0].equal(gradients[1])) << p.with->kind();
    EXPECT_TRUE(p.with->weight.grad().equal(p.without->weight.grad())) << p.with->kind();
    EXPECT_TRUE(p.with->scale_a.grad().equal(p.without->scale_a.grad())) << p.with->kind();
    EXPECT_FALSE(p.with->named_parameters().contains("channel_scale"));
  }
}

TEST(ChannelScale, ScalesStayFloat32) {
  for (const Pair& p : pairs()) {
    p.with->to(at::kBFloat16);
    EXPECT_TRUE(p.with->channel_scale.equal(p.scales.flatten())) << p.with->kind();
    const at::Tensor y = run_eval(*p.with, p.x.to(at::kBFloat16));
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    p.without->to(at::kBFloat16);
    const at::Tensor wanted = run_eval(*p.without, p.x.to(at::kBFloat16));
    EXPECT_TRUE(y.equal(wanted.mul(p.scales.to(at::kBFloat16)).add(p.bias.to(at::kBFloat16)))) << p.with->kind();
    StateDict entries = p.with->state(true);
    EXPECT_EQ(entries.at("channel_scale").scalar_type(), at::kFloat);
    p.with->check_state(entries, "")();
    EXPECT_TRUE(p.with->channel_scale.equal(p.scales.flatten()));
  }
}

TEST(ChannelScale, WeightDataAreSplitIntoChannelsOfOneSize) {
  for (const Pair& p : pairs()) {
    const std::int64_t channels = p.with->weight_shape()[0];
    at::Tensor data = numbers(p.with->weight_shape(), 9);
    for (std::int64_t o = 0; o < channels; ++o) data[o].mul_(o);
    p.with->set_weight_data(data);
    const at::Tensor sizes = data.to(at::kDouble).abs().flatten(1).mean(1), scales = p.with->channel_scale;
    EXPECT_TRUE(scales.slice(0, 1).allclose((sizes / sizes.mean()).to(at::kFloat).slice(0, 1), 1e-6)) << p.with->kind();
    EXPECT_EQ(scales[0].item<float>(), 1) << p.with->kind();
    StateDict entries = p.with->state(true);
    entries.erase("channel_scale");
    p.without->check_state(entries, "")();
    const auto along = [&](const at::Tensor& values) { return p.x.dim() == 4 ? values.view({1, -1, 1, 1}) : values; };
    assign(p.without->bias, 0);
    EXPECT_TRUE(run_eval(*p.with, p.x).equal(run_eval(*p.without, p.x).mul(along(scales)).add(along(p.with->bias))));
  }
}

TEST(ChannelScale, AnEntryThatDoesNotFitIsNamed) {
  const Pair p = pairs().front();
  const auto refused = [&](const at::Tensor& value) {
    StateDict entries = p.with->state(true);
    if (value.defined())
      entries["channel_scale"] = value;
    else
      entries.erase("channel_scale");
    return refusal([&] { p.with->check_state(entries, ""); });
  };
  EXPECT_EQ(refused({}), "the entry 'channel_scale' is missing");
  EXPECT_EQ(refused(at::full({8}, 1.0)),
            "the entry 'channel_scale': expected [7] of a floating-point dtype, got [8] of float32");
  EXPECT_NE(refused(at::full({7}, std::numeric_limits<double>::quiet_NaN())).find("'channel_scale'"),
            std::string::npos);
}

TEST(ChannelScale, TheDescriptionSaysThatThereAreSome) {
  std::ostringstream text;
  text << *pairs().front().with;
  EXPECT_EQ(text.str(), "Q8Linear(33, 7, float weight, bias, scales of channels)");
}

}  // namespace
}  // namespace bie::layers::test
