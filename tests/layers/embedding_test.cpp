// Embeddings of low-bit rows and the head that shares a table: lookups, gradients, states, refusals.
#include "bie/layers/embedding.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <sstream>

#include "bie/layers/state_dict.h"
#include "bie/layers/weight_only.h"
#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

double worst(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
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
  layer->forward(rows).sum().backward();
  EXPECT_TRUE(layer->weight_gradient().is_sparse());
  EXPECT_NE(refusal([&] { layer->forward(at::full({2}, 7, at::kLong)); }), "");
  EXPECT_NE(refusal([] {
              BinaryEmbedding(BinaryEmbeddingOptions{7, 13, 7});
            }).find("padding_idx is 7"),
            std::string::npos);
}

WeightOnlyEmbedding table_of(const at::Tensor& weight, int bits, std::int64_t group,
                             std::optional<std::int64_t> padding = {}) {
  WeightOnlyEmbedding table(WeightOnlyEmbeddingOptions{weight.size(0), weight.size(1), bits, group, padding});
  table->set_weight_data(weight);
  return table;
}

TEST(WeightOnlyEmbedding, RowsAreTheNearestCodes) {
  at::manual_seed(2);
  const at::Tensor weight = at::randn({11, 21});
  for (const std::int64_t group : {-1, 8, 100})
    for (const int bits : {2, 4, 8}) {
      WeightOnlyEmbedding table = table_of(weight, bits, group, 3);
      const at::Tensor y = table->forward(at::arange(11));
      const std::int64_t size = group == 8 ? 8 : 21;
      for (std::int64_t row = 0; row < 11; ++row)
        for (std::int64_t d = 0; d < 21; ++d) {
          const double step = table->scales[row][d / size].item<double>();
          EXPECT_LE(std::abs(y[row][d].item<double>() - weight[row][d].item<double>()), 0.5 * step + 1e-5);
        }
      EXPECT_TRUE(y.index({at::arange(3)}).equal(table->open().index({at::arange(3)})));
    }
}

TEST(WeightOnlyEmbedding, TheHeadSharesTheTableAndItsGradient) {
  at::manual_seed(3);
  WeightOnlyEmbedding table = table_of(at::randn({11, 21}), 4, 8);
  TiedHead head(table);
  EXPECT_TRUE(head->parameters().empty());
  const at::Tensor w = table->open().to(at::kDouble), x = at::randn({5, 21}).requires_grad_(), g = at::randn({5, 11});
  const at::Tensor y = head->forward(x);
  EXPECT_LT(worst(y, at::matmul(x.to(at::kDouble), w.t())), 1e-4);
  const at::Tensor rows = at::tensor({2, 7, 2}), up = at::randn({3, 21});
  table->forward(rows).backward(up);
  EXPECT_TRUE(table->weight_gradient().is_sparse());
  at::Tensor wanted = at::zeros({11, 21}, at::kDouble);
  wanted.index_add_(0, rows, up.to(at::kDouble));
  EXPECT_LT(worst(table->weight_gradient().to_dense(), wanted), 1e-5);
  y.backward(g);
  EXPECT_LT(worst(x.grad(), at::matmul(g.to(at::kDouble), w)), 1e-4);
  wanted += at::matmul(g.to(at::kDouble).t(), x.detach().to(at::kDouble));
  EXPECT_FALSE(table->weight_gradient().is_sparse());
  EXPECT_LT(worst(table->weight_gradient(), wanted), 1e-4);
  table->eval();
  head->eval();
  EXPECT_TRUE(head->forward(x).equal(y)) << "panels and none are the same bits";
  EXPECT_GT(table->derived_bytes(), 0);
  table->scales.mul_(2);
  table->zeros.mul_(2);
  EXPECT_LT(worst(head->forward(x), y * 2), 1e-4) << "panels follow the table";
}

TEST(WeightOnlyEmbedding, TheHeadTakesInt8Activations) {
  at::manual_seed(4);
  WeightOnlyEmbedding table = table_of(at::randn({11, 21}), 4, 8);
  TiedHead head(table);
  table->eval();
  head->eval();
  const at::Tensor x = at::randn({5, 21}), exact = head->forward(x);
  table->set_int8_activations(true);
  const at::Tensor y = head->forward(x);
  EXPECT_FALSE(y.equal(exact));
  const at::Tensor room = at::matmul(x.abs().amax(1, true).expand_as(x), table->open().abs().t()) / 254 + 1e-4;
  EXPECT_TRUE(((y - exact).abs() <= room).all().item<bool>());
  head->train();
  EXPECT_TRUE(head->forward(x).equal(y)) << "panels and none are the same bits";
  head->eval();
  table->set_int8_activations(false);
  EXPECT_TRUE(head->forward(x).equal(exact));
}

TEST(WeightOnlyEmbedding, WhatDoesNotFitIsNamed) {
  WeightOnlyEmbedding table = table_of(at::randn({5, 16}), 4, 8);
  for (const auto& [name, tensor] : std::vector<std::pair<std::string, at::Tensor>>{
           {"qweight", at::zeros({5, 3}, at::kInt)},
           {"scales", at::full({5, 2}, std::numeric_limits<float>::quiet_NaN())},
           {"zeros", at::zeros({5, 1})}}) {
    StateDict entries;
    for (const auto& [key, value] : table->state(true)) entries["p." + key] = value;
    entries["p." + name] = tensor;
    const std::string sentence = refusal([&] { table->check_state(entries, "p."); });
    EXPECT_NE(sentence.find("'p." + name + "'"), std::string::npos) << sentence;
  }
  const auto refused = [](const WeightOnlyEmbeddingOptions& o) {
    return refusal([&] { WeightOnlyEmbedding layer(o); });
  };
  EXPECT_NE(refused({5, 16, 7}).find("bits: expected 1, 2, 3, 4, 5, 6 or 8, got 7"), std::string::npos);
  EXPECT_NE(refused({5, 16, 4, 0}).find("group_size: expected -1 or a positive number, got 0"), std::string::npos);
  EXPECT_NE(refused({5, 16, 4, 8, -6}).find("padding_idx is -6"), std::string::npos);
  EXPECT_NE(refused({0, 16}).find("positive sizes"), std::string::npos);
  EXPECT_NE(refusal([&] { table->forward(at::full({2}, 5, at::kLong)); }), "");
  EXPECT_NE(refusal([&] { TiedHead(table)->forward(at::zeros({2, 15})); }).find("the table has 16"), std::string::npos);
  std::ostringstream text;
  text << TiedHead(table);
  EXPECT_EQ(text.str(), "TiedHead(WeightOnlyEmbedding(5, 16, bits=4, group_size=8))");
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
