// Layers whose weight alone has few bits: products, gradients, states, refusals.
#include "bie/layers/weight_only.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <sstream>

#include "bie/layers/state_dict.h"
#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

struct Sizes {
  std::int64_t in, out, group;
  int bits;
};

const Sizes every_size[] = {{64, 48, 32, 4}, {33, 7, -1, 8},  {100, 45, 24, 2}, {5, 3, 32, 1},
                            {70, 9, 32, 3},  {96, 33, 16, 5}, {41, 5, 16, 6}};

std::shared_ptr<WeightOnlyLinearImpl> linear(const Sizes& s, bool bias = true) {
  at::manual_seed(3);
  auto layer = std::make_shared<WeightOnlyLinearImpl>(WeightOnlyLinearOptions{s.in, s.out, s.bits, s.group, bias});
  layer->set_weight_data(at::randn({s.out, s.in}));
  if (bias) layer->bias.data().normal_();
  return layer;
}

double worst(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

TEST(WeightOnlyLinear, TheProductIsThatOfTheOpenedWeight) {
  for (const Sizes& s : every_size) {
    const auto layer = linear(s);
    const at::Tensor x = at::randn({2, 3, s.in});
    const at::Tensor wanted = at::matmul(x.to(at::kDouble), layer->open().to(at::kDouble)) + layer->bias;
    const at::Tensor y = layer->forward(x);
    EXPECT_LT(worst(y, wanted), 2e-6 * static_cast<double>(s.in + 8)) << s.bits;
    layer->eval();
    EXPECT_TRUE(layer->forward(x).equal(y)) << "panels and none are the same bits";
    EXPECT_GT(layer->derived_bytes(), 0);
  }
}

TEST(WeightOnlyLinear, CodesAreThoseNearestToTheWeight) {
  for (const Sizes& s : every_size) {
    if (s.bits == 1) continue;
    at::manual_seed(5);
    const at::Tensor weight = at::randn({s.out, s.in});
    const auto layer = linear(s);
    layer->set_weight_data(weight);
    const at::Tensor steps = layer->scales.index_select(0, layer->g_idx.to(at::kLong));
    EXPECT_LE(((layer->open() - weight.t()).abs() / steps).max().item<double>(), 0.5 + 1e-3);
  }
}

TEST(WeightOnlyLinear, GradientsAreThoseOfTheFloatProduct) {
  const auto layer = linear(every_size[2]);
  const at::Tensor x = at::randn({4, 100}).requires_grad_(), g = at::randn({4, 45});
  layer->forward(x).backward(g);
  EXPECT_LT(worst(x.grad(), at::matmul(g.to(at::kDouble), layer->open().to(at::kDouble).t())), 1e-4);
  EXPECT_FALSE(layer->weight_gradient().defined()) << "the weight is not trained unless asked for";
  layer->set_weight_trainable(true);
  layer->forward(x).backward(g);
  const at::Tensor wanted = at::matmul(x.detach().to(at::kDouble).t(), g.to(at::kDouble));
  EXPECT_LT(worst(layer->weight_gradient(), wanted), 1e-4);
  layer->eval();
  layer->forward(x).backward(g);
  EXPECT_LT(worst(layer->weight_gradient(), wanted), 1e-4) << "evaluation adds nothing";
}

TEST(WeightOnlyLinear, AStateIsTakenInEitherFormOfZeros) {
  const auto from = linear(every_size[0]), to = linear(every_size[0]);
  to->set_weight_data(at::randn({48, 64}));
  StateDict entries = from->state(true);
  const at::Tensor x = at::randn({3, 64});
  to->check_state(entries, "")();
  EXPECT_TRUE(entries.empty());
  EXPECT_TRUE(to->forward(x).equal(from->forward(x)));
  // GPTQ: W = scales * (q - z), z - 1 being stored.
  StateDict gptq = from->state(true);
  gptq.erase("zeros");
  gptq["qzeros"] = ops::pack_words(at::full({2, 48}, 6, at::kInt), 4, 1);
  to->check_state(gptq, "")();
  EXPECT_EQ(to->state(true).count("zeros"), 0u);
  const at::Tensor codes = ops::unpack_words(from->qweight, 4, 64);
  const at::Tensor wanted = from->scales.index_select(0, from->g_idx.to(at::kLong)) * (codes - 7);
  EXPECT_LT(worst(to->open(), wanted), 1e-6);
}

TEST(WeightOnlyLinear, WhatDoesNotFitIsNamedAndChangesNothing) {
  const auto layer = linear(every_size[0]);
  const at::Tensor x = at::randn({3, 64}), y = layer->forward(x);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<const char*, at::Tensor>> bad = {{"qweight", at::zeros({8, 47}, at::kInt)},
                                                               {"qweight", at::zeros({8, 48})},
                                                               {"scales", at::full({2, 48}, nan)},
                                                               {"scales", at::ones({2, 48}, at::kInt)},
                                                               {"zeros", at::ones({3, 48})},
                                                               {"g_idx", at::full({64}, 2, at::kInt)},
                                                               {"g_idx", at::full({64}, -1, at::kInt)},
                                                               {"bias", at::ones({47})}};
  for (const auto& [name, tensor] : bad) {
    StateDict entries;
    for (const auto& [key, value] : layer->state(true)) entries["p." + key] = value;
    entries["p." + std::string(name)] = tensor;
    const std::string sentence = refusal([&] { layer->check_state(entries, "p."); });
    EXPECT_NE(sentence.find("'p." + std::string(name) + "'"), std::string::npos) << sentence;
  }
  StateDict none;
  EXPECT_NE(refusal([&] { layer->check_state(none, ""); }).find("'qweight' is missing"), std::string::npos);
  EXPECT_NE(refusal([&] { layer->forward(at::ones({2, 63})); }).find("the layer has 64 features"), std::string::npos);
  EXPECT_NE(refusal([&] { layer->set_weight_data(at::ones({64, 48})); }).find("[48, 64]"), std::string::npos);
  EXPECT_NE(refusal([&] { layer->set_weight_data(at::full({48, 64}, nan)); }).find("NaN"), std::string::npos);
  EXPECT_NE(refusal([] {
              WeightOnlyLinearImpl(WeightOnlyLinearOptions{8, 8, 7});
            }).find("bits is 7"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              WeightOnlyLinearImpl(WeightOnlyLinearOptions{8, 8, 4, 0});
            }).find("group_size is 0"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              WeightOnlyLinearImpl(WeightOnlyLinearOptions{0, 8});
            }).find("positive sizes"),
            std::string::npos);
  EXPECT_TRUE(layer->forward(x).equal(y));
}

TEST(WeightOnlyLinear, ScalesStayFloatsAndPanelsFollowTheWeight) {
  const auto layer = linear(every_size[0]);
  layer->eval();
  const at::Tensor x = at::randn({3, 64}), y = layer->forward(x);
  layer->to(at::kHalf);
  EXPECT_EQ(layer->scales.scalar_type(), at::kFloat);
  EXPECT_EQ(layer->qweight.scalar_type(), at::kInt);
  EXPECT_LT(worst(layer->forward(x), y), 1e-2) << "the bias alone is rounded";
  layer->scales.mul_(2);
  EXPECT_GT(worst(layer->forward(x), y), 0.1);
  std::ostringstream text;
  text << *layer;
  EXPECT_EQ(text.str(), "WeightOnlyLinear(64, 48, bits=4, group_size=32, bias)");
}

TEST(BinaryEmbedding, RowsAreSignsTimesTheirMeanSize) {
  at::manual_seed(1);
  BinaryEmbedding layer(BinaryEmbeddingOptions{7, 13, -1});
  const at::Tensor weight = at::randn({7, 13});
  layer->set_weight_data(weight);
  const at::Tensor rows = at::arange(7), y = layer->forward(rows.view({7, 1}));
  const at::Tensor centred = weight - weight.mean();
  for (std::int64_t r = 0; r < 6; ++r) {
    const double size = (centred[r].abs().sum().item<double>() + 3) / 16;  // the pad counts as three of -1
    for (std::int64_t d = 0; d < 13; ++d)
      EXPECT_NEAR(y[r][0][d].item<double>(), centred[r][d].item<float>() >= 0 ? size : -size, 1e-5);
  }
  EXPECT_FALSE(y[6].any().item<bool>()) << "the padding row";
  StateDict entries = layer->state(true);
  BinaryEmbedding other(BinaryEmbeddingOptions{7, 13, -1});
  other->check_state(entries, "")();
  EXPECT_TRUE(other->forward(rows).equal(layer->forward(rows)));
  layer->set_weight_trainable(true);
  layer->forward(rows).sum().backward();
  EXPECT_TRUE(layer->weight_gradient().is_sparse());
  EXPECT_NE(refusal([&] { layer->forward(at::full({2}, 7, at::kLong)); }), "");
  EXPECT_NE(refusal([] {
              BinaryEmbedding(BinaryEmbeddingOptions{7, 13, 7});
            }).find("padding_idx is 7"),
            std::string::npos);
}

TEST(PackedLayers, ArePartOfAModelsState) {
  struct Net : torch::nn::Module {
    Net() {
      embedding = register_module("embedding", BinaryEmbedding(BinaryEmbeddingOptions{9, 16}));
      linear = register_module("linear", WeightOnlyLinear(WeightOnlyLinearOptions{16, 9}));
      linear->set_weight_data(at::randn({9, 16}));
    }
    at::Tensor forward(const at::Tensor& x) { return linear->forward(embedding->forward(x)); }
    BinaryEmbedding embedding{nullptr};
    WeightOnlyLinear linear{nullptr};
  };
  at::manual_seed(1);
  Net from, to;
  EXPECT_EQ(quant_layers(from).size(), 2u);
  load_state_dict(to, state_dict(from, /*packed=*/true));
  EXPECT_TRUE(to.forward(at::arange(9)).equal(from.forward(at::arange(9))));
}

}  // namespace
}  // namespace bie::layers::test
