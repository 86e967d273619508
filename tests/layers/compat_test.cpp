// Effects of compat = bie-0.2.6 and of the gradient mode, for a layer and for all layers of a module; the output bias.
#include "bie/models/classifier.h"
#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;
using ops::GradMode;

/// Another layer of the same state.
std::shared_ptr<IntegerLayer> copy_of(const EveryLayer::ParamType& param, const IntegerLayer& layer,
                                      bool bias = false) {
  const auto copy = param.make(bias);
  StateDict entries = layer.state(false);
  if (bias && entries.count("bias") == 0) entries["bias"] = numbers(copy->bias.sizes(), 40);
  copy->check_state(entries, "")();
  return copy;
}

at::Tensor along(const at::Tensor& features, std::int64_t axis, std::int64_t dim) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(dim), 1);
  shape[static_cast<std::size_t>(axis)] = -1;
  return features.view(shape);
}

std::vector<std::int64_t> other_axes(std::int64_t axis, std::int64_t dim) {
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < dim; ++i)
    if (i != axis) others.push_back(i);
  return others;
}

TEST_P(EveryLayer, CompatRoundsTheBiasedActivation) {
  const auto layer = make();
  run_training(*layer, batch());
  assign(layer->bias_a, numbers(layer->bias_a.sizes(), 3));
  const auto compat = copy_of(GetParam(), *layer), unbiased = copy_of(GetParam(), *layer);
  compat->set_compat(Compat::bie_0_2_6);
  assign(unbiased->bias_a, 0);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat})
    for (const bool training : {true, false}) {
      const at::Tensor x = batch(5).to(type);
      for (const auto& l : {layer, compat, unbiased}) l->train(training);
      const at::Tensor xs = x.add(along(layer->bias_a.detach().to(type), GetParam().axis, x.dim()));
      EXPECT_TRUE(run(*compat, x).equal(run(*unbiased, xs))) << type;
      if (type == at::kFloat) {
        EXPECT_TRUE(run(*compat, x).equal(run(*layer, x)));
      }
    }
}

TEST(Compat, TheRoundingIsSeen) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    at::manual_seed(3);
    Q8LinearImpl layer(257, 33);
    assign(layer.bias_a, numbers({257}, 3));
    const at::Tensor x = numbers({20, 257}, 1).to(type);
    const at::Tensor y = run_training(layer, x);
    layer.set_compat(Compat::bie_0_2_6);
    EXPECT_FALSE(run_training(layer, x).equal(y)) << type;
  }
}

/// Gradients of x, scale_a and bias_a.
std::vector<at::Tensor> gradients(IntegerLayer& layer, const at::Tensor& batch) {
  layer.train();
  layer.zero_grad();
  const at::Tensor x = batch.detach().clone().requires_grad_();
  const at::Tensor y = layer.forward(x);
  y.mul(numbers(y.sizes(), 2)).sum().backward();
  return {x.grad(), layer.scale_a.grad(), layer.bias_a.grad()};
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
}

TEST_P(EveryLayer, CompatMeansReferenceGradients) {
  const auto layer = make();
  run_training(*layer, batch());
  const auto compat = copy_of(GetParam(), *layer), reference = copy_of(GetParam(), *layer);
  compat->set_compat(Compat::bie_0_2_6);
  EXPECT_EQ(compat->compat(), Compat::bie_0_2_6);
  EXPECT_EQ(compat->grad_mode(), GradMode::reference);
  reference->set_grad_mode(GradMode::reference);
  EXPECT_EQ(reference->compat(), Compat::none);
  EXPECT_EQ(reference->grad_mode(), GradMode::reference);
  EXPECT_EQ(layer->grad_mode(), GradMode::exact);
  const auto exact = gradients(*layer, batch());
  expect_equal(gradients(*compat, batch()), gradients(*reference, batch()));
  if (layer->weight_bits() > 1) {
    EXPECT_FALSE(gradients(*reference, batch())[1].allclose(exact[1], 1e-3));
  } else {
    expect_equal(gradients(*reference, batch()), exact);
  }
  compat->set_compat(Compat::none);
  EXPECT_EQ(compat->grad_mode(), GradMode::exact) << "the mode it was made with";
  expect_equal(gradients(*compat, batch()), exact);
}

TEST(Compat, ItsNames) {
  EXPECT_EQ(compat_of("none"), Compat::none);
  EXPECT_EQ(compat_of("bie-0.2.6"), Compat::bie_0_2_6);
  for (const std::string name : {"", "bie", "bie-0.2.7", "None"})
    EXPECT_EQ(refusal([&] { compat_of(name); }), "compat: expected none or bie-0.2.6, got '" + name + "'");
}

TEST_P(EveryLayer, TheOutputBiasIsAdded) {
  const auto plain = make();
  run_training(*plain, batch());
  const auto biased = copy_of(GetParam(), *plain, /*bias=*/true);
  EXPECT_FALSE(plain->bias.defined());
  ASSERT_EQ(biased->bias.sizes(), at::IntArrayRef({plain->weight_shape()[0]}));
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const bool training : {true, false}) {
      plain->train(training);
      biased->train(training);
      const at::Tensor x = batch(3).to(type), y = run(*plain, x);
      const at::Tensor bias = along(biased->bias.detach().to(type), GetParam().axis, y.dim());
      EXPECT_TRUE(run(*biased, x).equal(y.add(bias))) << type << training;
    }
  biased->generate_quantized_weight(true);
  const at::Tensor y = run_eval(*plain, batch());
  EXPECT_TRUE(run_eval(*biased, batch()).equal(y.add(along(biased->bias.detach(), GetParam().axis, y.dim()))));
}

TEST_P(EveryLayer, TheGradientOfTheOutputBiasIsTheSum) {
  const auto layer = make(/*bias=*/true);
  const at::Tensor y = layer->forward(batch()), g = numbers(y.sizes(), 2);
  y.mul(g).sum().backward();
  ASSERT_TRUE(layer->bias.grad().defined());
  EXPECT_TRUE(layer->bias.grad().allclose(g.sum(other_axes(GetParam().axis, y.dim())), 1e-5, 1e-6));
  ASSERT_TRUE(layer->weight.grad().defined()) << "and the rest still trains";
}

TEST(OutputBias, StartsAsThatOfALinearLayer) {
  at::manual_seed(3);
  Q4LinearImpl layer(QLinearOptions{.in_features = 16, .out_features = 400, .bias = true});
  EXPECT_LE(layer.bias.abs().max().item<float>(), 0.25f);
  EXPECT_GT(layer.bias.abs().max().item<float>(), 0.2f);
  EXPECT_TRUE(layer.bias.requires_grad());
}

}  // namespace
}  // namespace bie::layers::test
