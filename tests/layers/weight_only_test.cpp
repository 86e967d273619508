// Linear layers whose weight alone has few bits: products, gradients, states, refusals.
#include "bie/layers/weight_only.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <sstream>

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

TEST(WeightOnlyLinear, Int8ActivationsAreAskedFor) {
  for (const Sizes& s : every_size) {
    const auto layer = linear(s);
    layer->eval();
    const at::Tensor x = at::randn({6, s.in}), exact = layer->forward(x);
    layer->set_int8_activations(true);
    EXPECT_TRUE(layer->int8_activations());
    const at::Tensor y = layer->forward(x);
    EXPECT_FALSE(y.equal(exact));
    const at::Tensor room = at::matmul(x.abs().amax(1, true).expand_as(x), layer->open().abs()) / 254 + 1e-4;
    EXPECT_TRUE(((y - exact).abs() <= room).all().item<bool>()) << s.bits;
    layer->train();
    EXPECT_TRUE(layer->forward(x).equal(y)) << "panels and none are the same bits";
    layer->eval();
    layer->set_int8_activations(false);
    EXPECT_TRUE(layer->forward(x).equal(exact));
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
  layer->set_weight_trainable(false);
  layer->forward(x).backward(g);
  EXPECT_LT(worst(x.grad(), at::matmul(g.to(at::kDouble), layer->open().to(at::kDouble).t())), 1e-4);
  EXPECT_FALSE(layer->weight_gradient().defined()) << "the weight is frozen";
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
  EXPECT_NE(refusal([&] {
              layer->forward(at::ones({2, 63}));
            }).find("x: expected the layer's 64 features, got [2, 63]"),
            std::string::npos);
  EXPECT_NE(refusal([&] { layer->set_weight_data(at::ones({64, 48})); }).find("[48, 64]"), std::string::npos);
  EXPECT_NE(refusal([&] { layer->set_weight_data(at::full({48, 64}, nan)); }).find("NaN"), std::string::npos);
  EXPECT_NE(refusal([] {
              WeightOnlyLinearImpl(WeightOnlyLinearOptions{8, 8, 7});
            }).find("bits: expected 1, 2, 3, 4, 5, 6 or 8, got 7"),
            std::string::npos);
  EXPECT_NE(refusal([] {
              WeightOnlyLinearImpl(WeightOnlyLinearOptions{8, 8, 4, 0});
            }).find("group_size: expected -1 or a positive number, got 0"),
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

at::Tensor drawn_order(std::int64_t rows) { return at::randperm(rows).to(at::kShort); }

/// Entries with rows of one width in random order. `weight` receives W from a plain loop over them.
StateDict uniform_entries(std::int64_t in, std::int64_t out, int bits, std::int64_t group, at::Tensor& weight) {
  at::manual_seed(7);
  const at::Tensor codes = at::randint(1 << bits, {in, out}, at::kInt);
  const std::int64_t groups = (in + group - 1) / group;
  StateDict entries = {{"qweight", ops::pack_words(codes, bits)},     {"q_perm", drawn_order(in)},
                       {"channel_scale", at::rand({1, 1, in}) + 0.5}, {"scales", at::rand({groups, out}) * 0.1 + 0.01},
                       {"zeros", at::randn({groups, out}) / 8},       {"bias", at::randn({out})}};
  weight = at::zeros({in, out}, at::kDouble);
  for (std::int64_t i = 0; i < in; ++i)
    weight[entries["q_perm"][i].item<std::int64_t>()] =
        codes[i].to(at::kDouble) * entries["scales"][i / group].to(at::kDouble) -
        entries["zeros"][i / group].to(at::kDouble);
  return entries;
}

void expect_product(CodedLinear& layer, const at::Tensor& factor, const at::Tensor& weight, const at::Tensor& bias) {
  EXPECT_LT(worst(layer.open(), weight), 1e-5);
  const at::Tensor x = at::randn({3, weight.size(0)}).requires_grad_();
  const at::Tensor xs = x.detach().to(at::kDouble) * factor.view({-1});
  const at::Tensor y = layer.forward(x);
  EXPECT_LT(worst(y, at::matmul(xs, weight) + bias), 1e-4);
  const at::Tensor g = at::randn(y.sizes());
  y.backward(g);
  EXPECT_LT(worst(x.grad(), at::matmul(g.to(at::kDouble), weight.t()) * factor.view({-1})), 1e-4);
  EXPECT_LT(worst(layer.weight_gradient(), at::matmul(xs.t(), g.to(at::kDouble))), 1e-4);
  layer.eval();
  EXPECT_TRUE(layer.forward(x).equal(y));
}

TEST(MBWQLinear, PermutedRowsOfOneWidth) {
  for (const int bits : {2, 4}) {
    at::Tensor weight;
    StateDict entries = uniform_entries(100, 9, bits, 32, weight);
    entries["wf"] = at::zeros({1});  // files have it, nobody needs it
    const StateDict given = entries;
    MBWQLinear layer(MBWQLinearOptions{100, 9, bits, 32, true});
    layer->check_state(entries, "")();
    EXPECT_TRUE(entries.empty());
    expect_product(*layer, given.at("channel_scale"), weight, given.at("bias"));
    const StateDict again = layer->state(true);
    EXPECT_EQ(again.size(), 6u);
    for (const auto& [key, tensor] : again) EXPECT_TRUE(tensor.equal(given.at(key))) << key;
  }
}

TEST(MBWQLinear, RowsOfSeveralWidths) {
  at::manual_seed(9);
  const std::int64_t out = 6, in = 32 + 32 + 10 + 64;
  std::vector<at::Tensor> words, codes;
  std::vector<std::int16_t> table;
  std::int64_t first = 0;
  for (const auto& [bits, rows] : std::vector<std::pair<int, std::int64_t>>{{8, 32}, {5, 32}, {3, 10}, {2, 64}}) {
    codes.push_back(at::randint(1 << bits, {rows, out}, at::kInt));
    words.push_back(ops::pack_words(codes.back(), bits));
    table.insert(table.end(), {static_cast<std::int16_t>(bits), static_cast<std::int16_t>(first)});
    first += words.back().size(0);
  }
  const at::Tensor scales = at::rand({4, out}) * 0.1, zeros = at::randn({4, out}) / 8, order = drawn_order(in);
  at::Tensor weight = at::zeros({in, out}, at::kDouble);
  for (std::int64_t g = 0, row = 0; g < 4; ++g)
    for (std::int64_t i = 0; i < codes[static_cast<std::size_t>(g)].size(0); ++i, ++row)
      weight[order[row].item<std::int64_t>()] =
          codes[static_cast<std::size_t>(g)][i].to(at::kDouble) * scales[g].to(at::kDouble) - zeros[g].to(at::kDouble);
  const at::Tensor factor = at::rand({1, 1, in}) + 0.5;
  const StateDict given = {{"qweight", at::cat(words)}, {"q_perm", order},
                           {"channel_scale", factor},   {"q_groups", at::tensor(table, at::kShort)},
                           {"scales", scales},          {"zeros", zeros}};
  MBWQLinear layer(MBWQLinearOptions{in, out, 0});
  EXPECT_THROW(layer->forward(at::ones({1, in})), c10::Error) << "there is no weight yet";
  const at::Tensor held = layer->qweight;
  StateDict entries = given;
  layer->check_state(entries, "")();
  EXPECT_TRUE(layer->qweight.is_same(held)) << "an optimizer may hold it";
  expect_product(*layer, factor, weight, at::zeros({out}));
  for (const auto& [key, tensor] : layer->state(true)) EXPECT_TRUE(tensor.equal(given.at(key))) << key;
  std::ostringstream text;
  text << *layer;
  EXPECT_EQ(text.str(), "MBWQLinear(138, 6, rows of several widths)");
  EXPECT_EQ(layer->weight_bits(), 8);
}

TEST(MBWQLinear, WhatDoesNotFitIsNamedAndChangesNothing) {
  at::Tensor weight;
  StateDict entries = uniform_entries(64, 8, 4, 32, weight);
  const StateDict given = entries;
  MBWQLinear layer(MBWQLinearOptions{64, 8, 4, 32, true});
  layer->check_state(entries, "")();
  const at::Tensor x = at::randn({2, 64}), y = layer->forward(x);
  for (const auto& [name, tensor] : std::vector<std::pair<std::string, at::Tensor>>{
           {"qweight", at::zeros({7, 8}, at::kInt)},
           {"q_perm", at::ones({64}, at::kShort)},
           {"q_perm", at::zeros({64}, at::kInt)},
           {"channel_scale", at::full({1, 1, 64}, std::numeric_limits<float>::infinity())},
           {"scales", at::ones({3, 8})},
           {"zeros", at::ones({2, 8}, at::kInt)}}) {
    StateDict bad;
    for (const auto& [key, value] : given) bad["p." + key] = value;
    bad["p." + name] = tensor;
    const std::string sentence = refusal([&] { layer->check_state(bad, "p."); });
    EXPECT_NE(sentence.find("'p." + name + "'"), std::string::npos) << name << ": " << sentence;
  }
  EXPECT_TRUE(layer->forward(x).equal(y));
  EXPECT_NE(refusal([] {
              MBWQLinear(MBWQLinearOptions{8, 8, 8});
            }).find("bits: expected 2 or 4, or 0 for rows of several widths, got 8"),
            std::string::npos);
  MBWQLinear mixed(MBWQLinearOptions{64, 8, 0});
  StateDict bad = given;
  bad["q_groups"] = at::tensor(std::vector<std::int16_t>{4, 0}, at::kShort);  // 64 rows, but two groups of scales
  bad.erase("bias");
  EXPECT_NE(refusal([&] { mixed->check_state(bad, ""); }).find("'scales'"), std::string::npos);
  bad = given;
  bad["q_groups"] = at::tensor(std::vector<std::int16_t>{2, 0, 2, 4}, at::kShort);
  EXPECT_NE(refusal([&] { mixed->check_state(bad, ""); }).find(": expected 64 rows, got 128"), std::string::npos);
}

}  // namespace
}  // namespace bie::layers::test
