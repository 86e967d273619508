// Models whose every tensor has left its initial value, for tests of their files.
#pragma once

#include "bie/models/classifier.h"
#include "tests/layers/every_layer.h"

namespace bie::models::test {

using layers::test::change;
using layers::test::expect_same;
using layers::test::informative;
using layers::test::numbers;
using layers::test::state;

/// Every width and form of every architecture; vgg-small has resnet20's layers, many times as large unless its width
/// is given.
inline std::vector<ModelConfig> every_model() {
  std::vector<ModelConfig> configs;
  for (const int bits : {32, 8, 4, 1}) configs.push_back({"mlp", bits, {1, 7, 5}, 3, 33, 2});
  for (const int bits : {32, 8, 4}) configs.push_back({"lenet", bits, {2, 17, 20}, 4, 33});
  for (const int bits : {8, 1})
    configs.push_back(
        {.arch = "lenet", .bits = 4, .image = {2, 17, 20}, .classes = 4, .hidden = 33, .linear_bits = bits});
  const std::vector<ModelConfig> usual = configs;
  const auto add = [&](const auto& change) {
    for (ModelConfig config : usual) {
      change(config);
      configs.push_back(config);
    }
  };
  add([](ModelConfig& c) { c.weights = WeightForm::floating; });
  add([](ModelConfig& c) { c.weights = WeightForm::integer; });
  add([](ModelConfig& c) { c.norm = false; });
  add([](ModelConfig& c) { c.quantise_first = true; });
  add([](ModelConfig& c) {
    c.norm = false;
    c.quantise_first = true;
    c.weights = WeightForm::integer;
  });
  for (const int bits : {32, 8, 4})
    for (const int linear_bits : {0, 32, 4, 1})
      configs.push_back({.arch = "resnet20",
                         .bits = bits,
                         .image = {3, 9, 8},
                         .classes = 4,
                         .hidden = 33,
                         .quantise_first = linear_bits == 1,
                         .linear_bits = linear_bits});
  for (const std::int64_t depth : {1, 2})
    for (const char* arch : {"resnet20", "vgg-small"})
      configs.push_back({.arch = arch,
                         .bits = depth == 1 ? 8 : 4,
                         .image = {3, 9, 8},
                         .classes = 4,
                         .depth = depth,
                         .width = 2 + depth});
  configs.push_back({.arch = "lenet", .bits = 4, .image = {2, 17, 20}, .classes = 4, .hidden = 33, .width = 5});
  for (const int bits : {8, 4})
    configs.push_back({.arch = "lenet",
                       .bits = bits,
                       .image = {2, 17, 20},
                       .classes = 4,
                       .hidden = 33,
                       .norm = bits == 4,
                       .bits_of = {{"head", bits}},
                       .channel_scales = true});
  return configs;
}

inline std::string describe(const ModelConfig& c) {
  return c.arch + " of " + std::to_string(c.bits) + " bits, weights " + name(c.weights) + (c.norm ? "" : ", no norm") +
         (c.quantise_first ? ", first too" : "") +
         (c.linear_bits == 0 ? "" : ", linear of " + std::to_string(c.linear_bits)) +
         (c.depth ? ", depth " + std::to_string(*c.depth) : "") +
         (c.width ? ", width " + std::to_string(*c.width) : "") + (c.channel_scales ? ", scales of channels" : "");
}

inline at::Tensor images(const ModelConfig& c, std::uint64_t seed = 1) {
  return numbers({6, c.image[0], c.image[1], c.image[2]}, seed);
}

/// Moves every parameter.
inline void train_a_step(Classifier& model, std::uint64_t seed) {
  model.train();
  model.zero_grad();
  const at::Tensor y = model.forward(images(model.config(), seed));
  y.mul(numbers(y.sizes(), seed + 50)).sum().backward();
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    at::Tensor& p = item.value();
    if (p.scalar_type() == at::kChar)
      p.copy_(p.flip(0));
    else
      p.add_(p.grad(), -1e-3);
  }
}

inline std::shared_ptr<Classifier> trained(const ModelConfig& config) {
  at::manual_seed(8);
  const auto model = make_model(config);
  for (const std::uint64_t seed : {1, 2, 3}) train_a_step(*model, seed);
  return model;
}

inline at::Tensor logits(Classifier& model) {
  const at::NoGradGuard no_grad;
  model.eval();
  return model.forward(images(model.config(), 9));
}

}  // namespace bie::models::test
