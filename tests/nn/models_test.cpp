// make_model: shapes, counts and refusals of every architecture and width.
#include "bie/nn/models.h"

#include <gtest/gtest.h>

#include "bie/nn/conv2d.h"
#include "tests/io/scratch.h"
#include "tests/nn/trained_model.h"

namespace bie::nn::test {
namespace {

using io::test::refusal;

ModelConfig mlp(int bits) { return {"mlp", bits, {1, 7, 5}, 3, 33, 2}; }
ModelConfig lenet(int bits) { return {"lenet", bits, {2, 17, 20}, 4, 33, 1}; }

/// Counts before anything ran, after a training forward, after packing.
void expect_counts(const ModelConfig& config, std::int64_t all, std::int64_t quantised) {
  EXPECT_EQ(weight_count(config), all) << config.arch << " " << config.bits << " from the sizes alone";
  const auto model = make_model(config);
  const auto expect = [&](const char* when) {
    EXPECT_EQ(model->weight_count(), all) << config.arch << " " << config.bits << " " << when;
    EXPECT_EQ(model->quantised_count(), config.bits == 32 ? 0 : quantised) << config.bits << " " << when;
  };
  expect("at the start");
  const at::NoGradGuard no_grad;
  const at::Tensor x = numbers({4, config.image[0], config.image[1], config.image[2]}, 1);
  const at::Tensor y = model->forward(x);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({4, config.classes}));
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  expect("after a training forward");
  model->eval();
  const at::Tensor logits = model->forward(x);
  expect("in evaluation");
  for (const auto& layer : model->quant_layers()) layer->generate_quantized_weight();
  expect("with both forms");
  for (const auto& layer : model->quant_layers()) layer->generate_quantized_weight(true);
  expect("packed");
  EXPECT_TRUE(model->forward(x).equal(logits));
}

TEST(Models, MlpCounts) {
  for (const int bits : {32, 8, 4, 1}) expect_counts(mlp(bits), 35 * 33 + 2 * 33 * 33 + 33 * 3, 2 * 33 * 33);
}

TEST(Models, LeNetCounts) {
  // 17 x 20 pixels: 13 x 16, 6 x 8, 2 x 4, 1 x 2
  const std::int64_t inner = 64 * 32 * 25 + 64 * 2 * 33;
  for (const int bits : {32, 8, 4}) expect_counts(lenet(bits), 32 * 2 * 25 + inner + 33 * 4, inner);
}

TEST(Models, InnerLayersHaveTheBitsOthersAreFloat) {
  for (const ModelConfig& config : {mlp(8), mlp(4), mlp(1), lenet(8), lenet(4)}) {
    const auto model = make_model(config);
    EXPECT_EQ(model->config().arch, config.arch);
    EXPECT_EQ(model->config().bits, config.bits);
    ASSERT_EQ(model->quant_layers().size(), 2u);
    for (const auto& layer : model->quant_layers()) {
      EXPECT_EQ(layer->weight_bits(), config.bits);
      bool found = false;
      for (const auto& module : model->modules()) found |= module.get() == layer.get();
      EXPECT_TRUE(found) << "registered, so that train, to and parameters reach it";
    }
  }
  const auto model = make_model(lenet(4));
  EXPECT_NE(dynamic_cast<Q4Conv2dImpl*>(model->quant_layers()[0].get()), nullptr) << "in the order of the forward pass";
}

TEST(Models, TheSameSeedGivesTheSameModel) {
  const auto weights = [](std::uint64_t seed) {
    at::manual_seed(seed);
    return make_model(mlp(4))->quant_layers()[1]->weight.detach().clone();
  };
  EXPECT_TRUE(weights(1).equal(weights(1)));
  EXPECT_FALSE(weights(1).equal(weights(2)));
}

TEST(Models, EveryParameterTrainsInEveryForm) {
  for (const ModelConfig& config : every_model()) {
    SCOPED_TRACE(describe(config));
    at::manual_seed(6);
    const auto model = make_model(config);
    const at::Tensor y = model->forward(images(config));
    EXPECT_TRUE(informative(y));
    y.mul(numbers(y.sizes(), 2)).sum().backward();
    for (const auto& item : model->named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      EXPECT_TRUE(item.value().grad().ne(0).any().item<bool>()) << item.key();
    }
    const bool is_float =
        config.weights == WeightForm::floating || (config.weights == WeightForm::usual && config.bits > 1);
    for (const auto& layer : model->quant_layers()) {
      EXPECT_STREQ(layer->weight_form(), is_float ? "float" : "int8");
      EXPECT_EQ(layer->bias.defined(), !config.norm) << "a norm has its own";
    }
  }
}

TEST(Models, WithoutNormLayersHaveAnOutputBias) {
  for (const int bits : {32, 1}) {
    ModelConfig config = mlp(bits);
    EXPECT_EQ(make_model(config)->named_parameters().contains("block1.product.bias"), false);
    EXPECT_EQ(make_model(config)->named_parameters().contains("block1.norm.weight"), true);
    config.norm = false;
    EXPECT_EQ(make_model(config)->named_parameters().contains("block1.product.bias"), true);
    EXPECT_EQ(make_model(config)->named_parameters().contains("block1.norm.weight"), false);
  }
}

// numbers of variance 1 go in; without a norm each layer must keep about that.
TEST(Models, WithoutNormTheSignalKeepsItsSize) {
  ModelConfig config{.arch = "mlp", .bits = 32, .image = {1, 16, 16}, .hidden = 256, .depth = 8, .norm = false};
  at::manual_seed(6);
  const at::NoGradGuard no_grad;
  const auto model = make_model(config);
  const double deviation = model->forward(numbers({64, 1, 16, 16}, 1)).square().mean().sqrt().item<double>();
  EXPECT_GT(deviation, 0.1);
  EXPECT_LT(deviation, 3);
}

TEST(Models, TheFirstLayerIsQuantisedWhereAsked) {
  for (ModelConfig config : {mlp(8), mlp(1), lenet(4)}) {
    config.quantise_first = true;
    const auto model = make_model(config);
    EXPECT_EQ(model->quant_layers().size(), 3u);
    EXPECT_EQ(weight_count(config), model->weight_count());
    EXPECT_EQ(model->quantised_count(), model->weight_count() - config.hidden * config.classes) << "all but the head";
    EXPECT_TRUE(model->named_parameters().contains("input_norm.weight"));
    config.quantise_first = false;
    EXPECT_FALSE(make_model(config)->named_parameters().contains("input_norm.weight"));
  }
}

TEST(Models, FormsOfWeightsHaveNames) {
  for (const WeightForm form : {WeightForm::usual, WeightForm::floating, WeightForm::integer})
    EXPECT_EQ(weight_form_of(name(form)), form);
  EXPECT_STREQ(name(WeightForm::floating), "float");
  EXPECT_STREQ(name(WeightForm::integer), "int8");
  EXPECT_EQ(refusal([] { weight_form_of("int4"); }), "the weights' form is 'int4', usual, float or int8 is wanted");
}

TEST(Models, WhatCannotBeBuiltIsRefused) {
  const auto expect = [](const ModelConfig& config, const std::string& part) {
    const std::string sentence = refusal([&] { make_model(config); });
    EXPECT_NE(sentence.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  };
  for (const int bits : {3, 0, -1, 2, 16, 64}) expect(mlp(bits), "bits is " + std::to_string(bits));
  ModelConfig config = mlp(8);
  config.arch = "x";
  expect(config, "'x'");
  config.arch = "";
  expect(config, "''");
  expect(lenet(1), "1-bit");
  config = lenet(8);
  config.image = {1, 8, 8};
  expect(config, "8x8");
  config.image = {1, 16, 15};
  expect(config, "16x15");
  config.image = {1, 16, 16};
  EXPECT_EQ(refusal([&] { make_model(config); }), "");
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{-5}, (std::int64_t{1} << 20) + 1, std::numeric_limits<std::int64_t>::max()}) {
    for (std::int64_t ModelConfig::*member : {&ModelConfig::classes, &ModelConfig::hidden, &ModelConfig::depth}) {
      config = mlp(4);
      config.*member = size;
      expect(config, std::to_string(size));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      config = mlp(4);
      config.image[i] = size;
      expect(config, std::to_string(size));
    }
  }
}

}  // namespace
}  // namespace bie::nn::test
