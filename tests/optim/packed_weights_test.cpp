// Weights of packed codes and signs: steps by the formulas of docs/spec/optimizer.md, states, and nets that learn.
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bie/layers/embedding.h"
#include "bie/layers/state_dict.h"
#include "bie/layers/weight_only.h"
#include "bie/optim/parameters.h"
#include "tests/optim/params.h"
#include "tests/support/scratch.h"

namespace bie::optim::test {
namespace {

using layers::BinaryEmbedding;
using layers::PackedWeight;
using layers::TiedHead;
using layers::WeightOnlyEmbedding;
using layers::WeightOnlyLinear;

constexpr DiodeMixOptions options{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.1};

WeightOnlyLinear linear(std::uint64_t seed, int bits = 4) {
  WeightOnlyLinear layer(layers::WeightOnlyLinearOptions{40, 6, bits, 16, true});
  layer->set_weight_data(numbers({6, 40}, seed));
  return layer;
}

WeightOnlyEmbedding table(std::uint64_t seed) {
  WeightOnlyEmbedding layer(layers::WeightOnlyEmbeddingOptions{9, 20, 4, 8});
  layer->set_weight_data(numbers({9, 20}, seed));
  return layer;
}

/// W after a first step of Adam, decay included.
at::Tensor after_a_step(const at::Tensor& w, const at::Tensor& g) {
  const double size = options.lr * std::sqrt(1 - options.beta2) / (1 - options.beta1);
  const at::Tensor u = (1 - options.beta1) * g / ((1 - options.beta2) * g.square()).sqrt().add(options.eps);
  return (w - size * u) * (1 - options.lr * options.weight_decay);
}

TEST(PackedWeights, CodesAreRoundedToOneOfTheTwoBesideTheStep) {
  for (const int bits : {2, 4, 8}) {
    WeightOnlyLinear layer = linear(1, bits);
    const at::Tensor before = layer->open(), g = numbers({40, 6}, 2);
    layer->packed_weight()->set_gradient(g);
    DiodeMix mix({{{Param(layer->packed_weight(), "w")}, options}}, 5);
    mix.step();
    const at::Tensor group = layer->g_idx.to(at::kLong), step = layer->scales.index_select(0, group);
    const at::Tensor low = -layer->zeros.index_select(0, group), high = low + step * ((1 << bits) - 1);
    const at::Tensor wanted = after_a_step(before, g).maximum(low).minimum(high);
    EXPECT_TRUE(((layer->open() - wanted).abs() / step).max().item<double>() <= 1 + 1e-4) << bits;
    EXPECT_FALSE(layer->open().equal(before)) << bits;
    const auto state = mix.state();
    EXPECT_TRUE(state.at("w.exp_avg_l").allclose(g * (1 - options.beta1), 1e-5, 1e-7));
    EXPECT_TRUE(state.at("w.exp_avg_s").allclose(g.square() * (1 - options.beta2), 1e-5, 1e-7));
  }
}

TEST(PackedWeights, RoundingIsRightOnAverage) {
  WeightOnlyLinear layer = linear(1);
  const at::Tensor before = layer->open(), words = layer->qweight.clone(), g = numbers({40, 6}, 2);
  at::Tensor sum = at::zeros({40, 6});
  constexpr int tries = 400;
  for (int seed = 0; seed < tries; ++seed) {
    layer->qweight.data().copy_(words);
    layer->packed_weight()->set_gradient(g);
    DiodeMix mix({{{Param(layer->packed_weight(), "w")}, options}}, static_cast<std::uint64_t>(seed));
    mix.step();
    sum += layer->open();
  }
  const at::Tensor group = layer->g_idx.to(at::kLong), step = layer->scales.index_select(0, group);
  const at::Tensor low = -layer->zeros.index_select(0, group), high = low + step * 15;
  const at::Tensor wanted = after_a_step(before, g).maximum(low).minimum(high);
  // A code is off by at most half a step with a deviation of at most 0.5 / sqrt(tries) = 0.025.
  EXPECT_LT(((sum / tries - wanted).abs() / step).max().item<double>(), 0.13);
}

TEST(PackedWeights, ZerosMoveEveryFifthStep) {
  WeightOnlyLinear layer = linear(1);
  const at::Tensor zeros = layer->zeros.clone(), g = numbers({40, 6}, 2);
  DiodeMix mix({{{Param(layer->packed_weight(), "w")}, {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99}}});
  for (int t = 1; t <= 5; ++t) {
    EXPECT_TRUE(layer->zeros.equal(zeros)) << t;
    layer->packed_weight()->set_gradient(g);
    mix.step();
  }
  EXPECT_FALSE(layer->zeros.equal(zeros));
}

TEST(PackedWeights, ATableIsSteppedOnTheRowsOfItsGradient) {
  WeightOnlyEmbedding codes = table(3);
  BinaryEmbedding signs(layers::BinaryEmbeddingOptions{9, 13});
  const at::Tensor words = codes->qweight.clone(), bits = signs->qweight.clone(), before = codes->open();
  const at::Tensor rows = at::tensor({2, 7, 2});
  const at::Tensor up = numbers({3, 20}, 4), votes = numbers({3, 13}, 5);
  codes->forward(rows).backward(up);
  signs->forward(rows).backward(votes);
  DiodeMixOptions quick = options;
  quick.lr = 1;
  DiodeMix mix(
      {{{Param(codes->packed_weight(), "codes")}, options}, {{Param(signs->packed_weight(), "signs")}, quick}});
  const at::Tensor sums = at::zeros({9, 13}).index_add(0, rows, votes);
  mix.step();
  const auto state = mix.state();
  EXPECT_EQ(state.count("signs.exp_avg_l"), 0u);
  for (std::int64_t row = 0; row < 9; ++row) {
    const bool used = row == 2 || row == 7;
    EXPECT_EQ(state.at("codes.exp_avg_s")[row].any().item<bool>(), used) << row;
    if (!used) {
      EXPECT_TRUE(codes->qweight[row].equal(words[row])) << row;
      EXPECT_TRUE(signs->qweight[row].equal(bits[row])) << row;
    }
  }
  const at::Tensor g = at::zeros({9, 20}).index_add(0, rows, up).index_select(0, at::tensor({2, 7}));
  const at::Tensor step = codes->scales.index_select(0, at::tensor({2, 7})).repeat_interleave(8, 1).narrow(1, 0, 20);
  const at::Tensor low = -codes->zeros.index_select(0, at::tensor({2, 7})).repeat_interleave(8, 1).narrow(1, 0, 20);
  const at::Tensor wanted =
      after_a_step(before.index_select(0, at::tensor({2, 7})), g).maximum(low).minimum(low + 15 * step);
  const at::Tensor now = codes->open().index_select(0, at::tensor({2, 7}));
  EXPECT_LE(((now - wanted).abs() / step).max().item<double>(), 1 + 1e-4);
  // s = lerp(s, lr * vote, 1 - b2): at this rate one vote outweighs the first value, below 1e-3. Scales are positive.
  const at::Tensor unpacked = ops::unpack_signs(signs->qweight, 13).to(at::kFloat);
  for (const std::int64_t row : {2, 7})
    EXPECT_TRUE(unpacked[row].equal(at::where(sums[row].ge(0), -1.0, 1.0).to(at::kFloat))) << row;
}

TEST(PackedWeights, GroupsHaveRatesOfTheirOwn) {
  WeightOnlyLinear still = linear(1), moving = linear(1);
  for (const WeightOnlyLinear& layer : {still, moving}) layer->packed_weight()->set_gradient(numbers({40, 6}, 2));
  DiodeMixOptions frozen = options;
  frozen.lr = 0;
  DiodeMix mix(
      {{{Param(still->packed_weight(), "still")}, frozen}, {{Param(moving->packed_weight(), "moving")}, options}});
  mix.step();
  EXPECT_TRUE(still->qweight.equal(linear(1)->qweight));
  EXPECT_FALSE(moving->qweight.equal(linear(1)->qweight));
}

TEST(PackedWeights, AGradientThatIsNotFiniteIsLeftOut) {
  WeightOnlyLinear layer = linear(1);
  WeightOnlyEmbedding codes = table(3);
  const at::Tensor words = layer->qweight.clone(), rows = codes->qweight.clone();
  layer->packed_weight()->set_gradient(at::full({40, 6}, std::numeric_limits<float>::quiet_NaN()));
  codes->forward(at::arange(3)).backward(at::full({3, 20}, std::numeric_limits<float>::infinity()));
  DiodeMix mix({{{Param(layer->packed_weight(), "w"), Param(codes->packed_weight(), "t")}, options}});
  mix.step();
  EXPECT_TRUE(layer->qweight.equal(words) && codes->qweight.equal(rows));
  EXPECT_EQ(mix.state().count("w.step"), 0u);
}

/// A table, its head and a layer between them.
struct Net : torch::nn::Module {
  explicit Net(std::uint64_t seed = 11)
      : embed(register_module("embed", table(seed))),
        bits(register_module("bits", BinaryEmbedding(layers::BinaryEmbeddingOptions{9, 20}))),
        inner(register_module("inner", WeightOnlyLinear(layers::WeightOnlyLinearOptions{20, 20, 4, 8, true}))),
        head(register_module("head", TiedHead(embed))) {
    inner->set_weight_data(numbers({20, 20}, seed + 1) * 0.3);
    bits->set_weight_data(numbers({9, 20}, seed + 2));
  }
  at::Tensor forward(const at::Tensor& x) {
    return head->forward(at::relu(inner->forward(embed->forward(x) + bits->forward(x))));
  }
  WeightOnlyEmbedding embed;
  BinaryEmbedding bits;
  WeightOnlyLinear inner;
  TiedHead head;
};

void backward(Net& net, std::uint64_t seed) {
  const at::Tensor rows = at::arange(7) % 5;
  net.forward(rows).backward(numbers({7, 9}, seed));
}

TEST(PackedWeights, AreParametersOfTheirLayers) {
  Net net;
  std::set<std::string> names;
  for (const Param& param : parameters(net)) names.insert(param.name);
  EXPECT_EQ(names, (std::set<std::string>{"embed.qweight", "bits.qweight", "inner.qweight", "inner.bias"}));
  net.bits->set_weight_trainable(false);
  EXPECT_EQ(parameters(net).size(), 3u);
}

TEST(PackedWeights, ARunGoesOnToTheBit) {
  for (const MomentType moments : {MomentType::float32, MomentType::bfloat16})
    for (const int stop : {0, 1, 4, 6}) {
      Net one, two(99);
      DiodeMix whole({{parameters(one), options}}, 17, moments);
      const auto train = [](Net& net, DiodeMix& mix, int from, int to) {
        for (int t = from; t < to; ++t) {
          mix.zero_grad();
          backward(net, static_cast<std::uint64_t>(t));
          mix.step();
        }
      };
      train(one, whole, 0, stop);
      layers::load_state_dict(two, layers::state_dict(one, /*packed=*/true));
      DiodeMix later({{parameters(two), {}}}, 1, moments);
      later.load_state(whole.state());
      EXPECT_EQ(later.state_bytes(), whole.state_bytes());
      train(one, whole, stop, 7);
      train(two, later, stop, 7);
      const auto wanted = layers::state_dict(one, true), found = layers::state_dict(two, true);
      for (const auto& [name, tensor] : wanted) EXPECT_TRUE(tensor.equal(found.at(name))) << name << " from " << stop;
    }
}

TEST(PackedWeights, AStateThatDoesNotFitIsNamed) {
  Net net;
  DiodeMix mix({{parameters(net), options}});
  backward(net, 1);
  mix.step();
  for (const char* name : {"embed.qweight.exp_avg_l", "bits.qweight.exp_avg_s", "inner.qweight.exp_avg_s"}) {
    auto state = mix.state();
    state[name] = at::zeros({2, 2});
    EXPECT_NE(bie::test::refusal([&] { mix.load_state(state); }).find(name), std::string::npos) << name;
  }
  auto state = mix.state();
  state["bits.qweight.exp_avg_l"] = at::zeros({9, 24});
  EXPECT_NE(bie::test::refusal([&] { mix.load_state(state); }).find("belongs to no parameter"), std::string::npos);
}

TEST(PackedWeights, ALayerThatRanWantsAGradient) {
  Net net;
  DiodeMix mix({{parameters(net), options}});
  net.bits->forward(at::arange(3));  // and its output is not used
  const at::Tensor rows = at::arange(4);
  net.head->forward(net.inner->forward(net.embed->forward(rows))).sum().backward();
  EXPECT_THROW(mix.step(), c10::Error);
  net.bits->packed_weight()->awaits_gradient = false;
  EXPECT_NO_THROW(mix.step());
  mix.zero_grad();
  EXPECT_FALSE(net.embed->weight_gradient().defined());
  net.inner->set_weight_trainable(false);
  net.embed->set_weight_trainable(false);
  EXPECT_NO_THROW(mix.step()) << "nothing has a gradient";
}

/// The loss of the next of a text's characters from the four before it, before training and after.
std::pair<double, double> learned(int bits, bool trains, std::uint64_t seed) {
  struct Characters : torch::nn::Module {
    Characters(std::int64_t letters, int width, std::uint64_t start)
        : embed(register_module("embed",
                                WeightOnlyEmbedding(layers::WeightOnlyEmbeddingOptions{letters, 16, width, 16}))),
          inner(register_module("inner", WeightOnlyLinear(layers::WeightOnlyLinearOptions{64, 48, width, 32, true}))),
          head(register_module("head",
                               WeightOnlyLinear(layers::WeightOnlyLinearOptions{48, letters, width, 16, true}))) {
      embed->set_weight_data(numbers({letters, 16}, start));
      inner->set_weight_data(numbers({48, 64}, start + 1) / 8);
      head->set_weight_data(numbers({letters, 48}, start + 2) / 7);
    }
    at::Tensor forward(const at::Tensor& x) {
      return head->forward(at::relu(inner->forward(embed->forward(x).flatten(1))));
    }
    WeightOnlyEmbedding embed;
    WeightOnlyLinear inner, head;
  };
  const std::string text = "the quick brown fox jumps over the lazy dog while the dog sleeps in the brown field";
  const std::set<char> letters(text.begin(), text.end());
  std::vector<std::int64_t> codes;
  for (const char c : text) codes.push_back(std::distance(letters.begin(), letters.find(c)));
  const at::Tensor all = at::tensor(codes);
  const at::Tensor x = all.unfold(0, 4, 1).narrow(0, 0, all.size(0) - 4), y = all.narrow(0, 4, all.size(0) - 4);
  Characters net(static_cast<std::int64_t>(letters.size()), bits, seed);
  for (const auto& [name, layer] : layers::layers_of<layers::PackedLayer>(net)) layer->set_weight_trainable(trains);
  DiodeMix mix({{parameters(net), {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999}}}, seed);
  double first = 0, last = 0;
  for (int t = 0; t < 150; ++t) {
    mix.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(net.forward(x), y);
    loss.backward();
    mix.step();
    last = loss.item<double>();
    if (t == 0) first = last;
  }
  return {first, last};
}

TEST(PackedWeights, ACharacterModelLearnsAText) {
  for (const int bits : {4, 2}) {
    std::vector<double> trained;
    for (const std::uint64_t seed : {1, 2, 3}) trained.push_back(learned(bits, true, seed).second);
    std::sort(trained.begin(), trained.end());
    const auto [first, frozen] = learned(bits, false, 1);
    EXPECT_LT(trained[1], 0.4) << bits;  // three seeds: 0.11 at 4 bits, 0.12 to 0.14 at 2
    EXPECT_GT(frozen, 0.5 * first) << "biases alone learn little";
  }
}

}  // namespace
}  // namespace bie::optim::test
