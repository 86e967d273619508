// make_model: shapes, counts and refusals of every architecture and width.
#include "bie/models/classifier.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "bie/layers/conv2d.h"
#include "tests/models/trained_model.h"
#include "tests/support/scratch.h"

namespace bie::models::test {
namespace {

using bie::test::refusal;

ModelConfig mlp(int bits) { return {"mlp", bits, {1, 7, 5}, 3, 33, 2}; }
ModelConfig lenet(int bits) { return {"lenet", bits, {2, 17, 20}, 4, 33}; }

ModelConfig vgg(int bits, int linear_bits = 0) {
  return {
      .arch = "vgg-small", .bits = bits, .image = {3, 19, 8}, .classes = 4, .hidden = 33, .linear_bits = linear_bits};
}
ModelConfig resnet(int bits, int linear_bits = 0) {
  return {.arch = "resnet20", .bits = bits, .image = {3, 9, 6}, .classes = 4, .hidden = 33, .linear_bits = linear_bits};
}

/// Counts before anything ran, after a training forward, after packing.
void expect_counts(const ModelConfig& config, std::int64_t all, std::int64_t quantised) {
  EXPECT_EQ(weight_count(config), all) << config.arch << " " << config.bits << " from the sizes alone";
  const auto model = make_model(config);
  const auto expect = [&](const char* when) {
    EXPECT_EQ(model->weight_count(), all) << config.arch << " " << config.bits << " " << when;
    EXPECT_EQ(model->quantised_count(), quantised) << config.bits << " " << when;
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
  for (const int bits : {32, 8, 4, 1})
    expect_counts(mlp(bits), 35 * 33 + 2 * 33 * 33 + 33 * 3, bits == 32 ? 0 : 2 * 33 * 33);
}

TEST(Models, LeNetCounts) {
  // 17 x 20 pixels: 13 x 16, 6 x 8, 2 x 4, 1 x 2
  const std::int64_t conv = 64 * 32 * 25, linear = 64 * 2 * 33, rest = 32 * 2 * 25 + 33 * 4;
  for (const int bits : {32, 8, 4}) {
    ModelConfig config = lenet(bits);
    const std::int64_t quantised_conv = bits == 32 ? 0 : conv;
    expect_counts(config, rest + conv + linear, bits == 32 ? 0 : conv + linear);
    for (const int linear_bits : {32, 8, 4, 1}) {
      config.linear_bits = linear_bits;
      expect_counts(config, rest + conv + linear, quantised_conv + (linear_bits == 32 ? 0 : linear));
    }
  }
}

TEST(Models, VggSmallCounts) {
  const std::int64_t first = 9 * 3 * 128, features = 512 * 2;
  const std::int64_t inner = 9 * (128 * 128 + 128 * 256 + 256 * 256 + 256 * 512 + 512 * 512);
  for (const int bits : {32, 8, 4}) expect_counts(vgg(bits), first + inner + features * 4, bits == 32 ? 0 : inner);
  expect_counts(vgg(4, 1), first + inner + features * 33 + 33 * 4, inner + features * 33);
}

TEST(Models, ResNet20Counts) {
  const std::int64_t first = 9 * 3 * 16;
  const std::int64_t inner = 9 * (6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64);
  for (const int bits : {32, 8, 4}) {
    const std::int64_t quantised = bits == 32 ? 0 : inner;
    expect_counts(resnet(bits), first + inner + 64 * 4, quantised);
    for (const int linear_bits : {32, 8, 4, 1})
      expect_counts(resnet(bits, linear_bits), first + inner + 64 * 33 + 33 * 4,
                    quantised + (linear_bits == 32 ? 0 : 64 * 33));
  }
}

TEST(Models, WidthAndDepthAreThoseOfTheStages) {
  ModelConfig config = vgg(8);
  config.width = 5;
  config.depth = 3;
  // Images of 19 x 8: 2 x 1 behind three pools.
  expect_counts(config, 9 * (3 * 5 + 2 * 5 * 5 + 5 * 10 + 2 * 10 * 10 + 10 * 20 + 2 * 20 * 20) + 2 * 20 * 4,
                9 * (2 * 5 * 5 + 5 * 10 + 2 * 10 * 10 + 10 * 20 + 2 * 20 * 20));
  EXPECT_EQ(layer_names(config).size(), 3u * 3 + 1);
  config = resnet(4);
  config.width = 5;
  config.depth = 2;
  const std::int64_t inner = 9 * (4 * 5 * 5 + 5 * 10 + 3 * 10 * 10 + 10 * 20 + 3 * 20 * 20);
  expect_counts(config, 9 * 3 * 5 + inner + 20 * 4, inner);
  EXPECT_EQ(layer_names(config).size(), 6u * 2 + 2);
  config.depth = 5;
  EXPECT_EQ(layer_names(config).size(), 32u) << "ResNet-32";
  config = lenet(8);
  config.width = 3;
  expect_counts(config, 3 * 2 * 25 + 6 * 3 * 25 + 6 * 2 * 33 + 33 * 4, 6 * 3 * 25 + 6 * 2 * 33);
}

/// A float model's tensors and the layers that read them.
struct Formula {
  layers::StateDict state;

  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const auto of = [&](const std::string& key) {
      const auto found = state.find(name + key);
      return found == state.end() ? at::Tensor() : found->second;
    };
    return at::batch_norm(x, of(".weight"), of(".bias"), of(".running_mean"), of(".running_var"), false, 0.1, 1e-5,
                          false);
  }
  at::Tensor conv(const std::string& name, const at::Tensor& x, std::int64_t stride = 1) const {
    return norm(name + ".norm", at::conv2d(x, state.at(name + ".product.weight"), {}, stride, 1));
  }
  /// A binary convolution of normalised features, padded with -1.
  at::Tensor sign_conv(const std::string& name, const at::Tensor& x, std::int64_t stride = 1) const {
    const auto of = [&](const char* key) { return state.at(name + ".product." + key); };
    const at::Tensor xs = norm(name + ".signs_norm", x) + of("bias_a").view({1, -1, 1, 1});
    const at::Tensor signs = at::constant_pad_nd(at::where(xs.ge(0), 1.0f, -1.0f), {1, 1, 1, 1}, -1);
    const at::Tensor sums = at::conv2d(signs, at::where(of("weight").ge(0), 1.0f, -1.0f), {}, stride);
    return norm(name + ".norm", sums * (of("scale_a") * of("scale_w")));
  }
  at::Tensor head(const at::Tensor& x) const { return at::linear(x, state.at("head.weight"), state.at("head.bias")); }
};

TEST(Models, VggSmallIsItsFormula) {
  const auto model = trained(vgg(32));
  const Formula f{state(*model)};
  at::Tensor x = f.norm("input_norm", images(model->config(), 9));
  for (const std::string stage : {"01", "23", "45"}) {
    for (const char conv : stage) x = f.conv(std::string("conv") + conv, x).relu();
    x = at::max_pool2d(x, 2);
  }
  EXPECT_TRUE(logits(*model).allclose(f.head(x.flatten(1)), 1e-4, 1e-5));
  EXPECT_FALSE(f.state.at("input_norm.running_mean").allclose(at::zeros({3}), 0, 1e-3)) << "of the images";
}

TEST(Models, AVggSmallOfAnotherSizeIsItsFormula) {
  ModelConfig config = vgg(32);
  config.width = 5;
  config.depth = 3;
  const auto model = trained(config);
  const Formula f{state(*model)};
  at::Tensor x = f.norm("input_norm", images(config, 9));
  for (const std::string stage : {"012", "345", "678"}) {
    for (const char conv : stage) x = f.conv(std::string("conv") + conv, x).relu();
    x = at::max_pool2d(x, 2);
  }
  EXPECT_TRUE(logits(*model).allclose(f.head(x.flatten(1)), 1e-4, 1e-5));
}

/// Residual around a convolution: where it halves the map, every other pixel and channels of zeros.
at::Tensor around(const at::Tensor& x, std::int64_t stride) {
  if (stride == 1) return x;
  const at::Tensor fewer = at::avg_pool2d(x, 1, 2);
  return at::cat({fewer, at::zeros_like(fewer)}, 1);
}

/// He et al.'s net with `depth` blocks in a stage.
void expect_resnet(const ModelConfig& config, int depth) {
  const auto model = trained(config);
  const Formula f{state(*model)};
  at::Tensor x = f.conv("conv", f.norm("input_norm", images(model->config(), 9))).relu();
  for (int i = 0; i < 3 * depth; ++i) {
    const std::string name = "block" + std::to_string(i);
    const std::int64_t stride = i == depth || i == 2 * depth ? 2 : 1;
    x = (f.conv(name + ".conv2", f.conv(name + ".conv1", x, stride).relu()) + around(x, stride)).relu();
  }
  EXPECT_TRUE(logits(*model).allclose(f.head(x.mean({2, 3})), 1e-4, 1e-5));
}

TEST(Models, ResNet20IsItsFormula) { expect_resnet(resnet(32), 3); }

TEST(Models, AResNetOfAnotherSizeIsItsFormula) {
  ModelConfig config = resnet(32);
  config.width = 5;
  config.depth = 1;
  expect_resnet(config, 1);
}

TEST(Models, ABinaryResNetHasAShortcutRoundEachConvolution) {
  ModelConfig config = resnet(1);
  config.width = 5;
  config.depth = 1;
  const auto model = trained(config);
  const Formula f{state(*model)};
  at::Tensor x = f.conv("conv", f.norm("input_norm", images(config, 9))).relu();
  for (int i = 0; i < 3; ++i) {
    const std::string name = "block" + std::to_string(i);
    const std::int64_t stride = i == 0 ? 1 : 2;
    const auto act = [&](const char* conv, const at::Tensor& y) {
      return at::prelu(y, f.state.at(name + "." + conv + ".act.weight"));
    };
    const at::Tensor y = act("conv1", f.sign_conv(name + ".conv1", x, stride) + around(x, stride));
    x = act("conv2", f.sign_conv(name + ".conv2", y) + y);
  }
  EXPECT_TRUE(logits(*model).allclose(f.head(x.mean({2, 3})), 1e-4, 1e-5));
}

TEST(Models, InnerLayersHaveTheBitsOthersAreFloat) {
  for (const ModelConfig& config :
       {mlp(8), mlp(4), mlp(1), lenet(8), lenet(4), lenet(1), vgg(8), vgg(1), resnet(4), resnet(1)}) {
    const auto model = make_model(config);
    EXPECT_EQ(model->config().arch, config.arch);
    EXPECT_EQ(model->config().bits, config.bits);
    ASSERT_EQ(model->quant_layers().size(), config.arch == "vgg-small" ? 5u : config.arch == "resnet20" ? 18u : 2u);
    for (const auto& layer : model->quant_layers()) {
      EXPECT_EQ(layer->weight_bits(), config.bits);
      bool found = false;
      for (const auto& module : model->modules()) found |= module.get() == layer.get();
      EXPECT_TRUE(found) << "registered, so that train, to and parameters reach it";
    }
  }
  const auto model = make_model(lenet(4));
  EXPECT_NE(dynamic_cast<layers::Q4Conv2dImpl*>(model->quant_layers()[0].get()), nullptr)
      << "in the order of the forward pass";
  const auto binary = make_model(lenet(1));
  EXPECT_NE(dynamic_cast<layers::BinaryConv2dImpl*>(binary->quant_layers()[0].get()), nullptr);
}

TEST(Models, TheInnerLinearHasItsOwnBits) {
  ModelConfig small = lenet(8);
  small.linear_bits = 4;
  for (const ModelConfig& config : {small, vgg(8, 4), resnet(8, 4), resnet(8, 1), resnet(32, 1)}) {
    const auto model = make_model(config);
    EXPECT_EQ(model->quant_layers().back()->weight_bits(), config.linear_bits);
    EXPECT_EQ(model->quant_layers().back()->weight_shape()[0], 33);
    EXPECT_EQ(model->quant_layers().front()->weight_bits(), config.bits == 8 ? 8 : config.linear_bits);
    EXPECT_EQ(model->named_buffers().contains("inner_norm.running_mean"), config.linear_bits == 1);
    EXPECT_FALSE(model->named_parameters().contains("inner_norm.weight"));
  }
}

// A ReLU's results have one sign, from which a binary layer would make the same output for every image.
TEST(Models, ABinaryLayerReadsBothSigns) {
  for (const ModelConfig& config : {vgg(32, 1), resnet(32, 1), lenet(1), vgg(1), resnet(1)}) {
    at::manual_seed(8);
    const at::NoGradGuard no_grad;
    EXPECT_GT(make_model(config)->forward(images(config)).std(0).min().item<double>(), 1e-3) << config.arch;
  }
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
    for (const auto& layer : model->quant_layers()) {
      const bool is_float =
          config.weights == WeightForm::floating || (config.weights == WeightForm::usual && layer->weight_bits() > 1);
      EXPECT_STREQ(layer->weight_form(), is_float ? "float" : "int8");
      const bool is_head = layer == model->products().back().layer;
      EXPECT_EQ(layer->bias.defined(), !config.norm || is_head) << "a norm has its own";
      EXPECT_EQ(layer->channel_scale.defined(), config.channel_scales && layer->bias.defined());
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
  for (ModelConfig config : {mlp(8), mlp(1), lenet(4), vgg(8, 8), resnet(4, 4)}) {
    const std::size_t before = make_model(config)->quant_layers().size();
    config.quantise_first = true;
    const auto model = make_model(config);
    EXPECT_EQ(model->quant_layers().size(), before + 1);
    EXPECT_EQ(weight_count(config), model->weight_count());
    EXPECT_EQ(model->quantised_count(), model->weight_count() - config.hidden * config.classes) << "all but the head";
    EXPECT_TRUE(model->named_buffers().contains("input_norm.running_mean"));
    const bool always = config.arch == "vgg-small" || config.arch == "resnet20";
    config.quantise_first = false;
    EXPECT_EQ(make_model(config)->named_buffers().contains("input_norm.running_mean"), always);
  }
}

TEST(Models, BitsOfSingleLayers) {
  ModelConfig config = lenet(4);
  EXPECT_EQ(layer_names(config), (std::vector<std::string>{"conv1", "conv2", "inner", "head"}));
  config.bits_of = {{"conv1", 8}, {"conv2", 32}, {"head", 1}};
  const auto model = make_model(config);
  ASSERT_EQ(model->quant_layers().size(), 3u);
  EXPECT_EQ(model->quant_layers()[0]->weight_bits(), 8);
  EXPECT_EQ(model->quant_layers()[1]->weight_bits(), 4) << "the inner linear, as bits says";
  EXPECT_EQ(model->quant_layers()[2]->weight_bits(), 1);
  EXPECT_TRUE(model->named_buffers().contains("input_norm.running_mean")) << "as for quantise_first";
  EXPECT_TRUE(model->named_parameters().contains("head.bias"));
  EXPECT_EQ(model->products().size(), 4u);
  EXPECT_EQ(model->products()[1].name, "conv2");
  EXPECT_TRUE(model->products()[1].norm);
  EXPECT_FALSE(model->products()[3].norm);
  for (const auto& [name, bits, part] : std::vector<std::tuple<std::string, int, std::string>>{
           {"conv9", 8, "there is no layer 'conv9'; the layers are conv1, conv2, inner, head"},
           {"conv2", 3, "the width of layer 'conv2': expected 32, 8, 4 or 1, got 3"}}) {
    config.bits_of = {{name, bits}};
    EXPECT_NE(refusal([&] { make_model(config); }).find(part), std::string::npos) << part;
  }
}

TEST(Models, AProbeSeesTheInputOfEachLayer) {
  for (const ModelConfig& config : {mlp(8), lenet(4), vgg(8), resnet(4, 4)}) {
    const auto model = make_model(config);
    model->eval();
    std::vector<std::string> seen;
    at::Tensor last;
    model->set_probe([&](const std::string& name, const at::Tensor& x) {
      seen.push_back(name);
      last = x;
    });
    const at::Tensor y = logits(*model);
    EXPECT_EQ(seen, layer_names(config));
    // torch's sum has another order than the layer's own.
    const at::Tensor torchs =
        std::dynamic_pointer_cast<torch::nn::LinearImpl>(model->products().back().layer)->forward(last);
    EXPECT_LE((y - torchs).abs().max().item<float>(), 1e-5f * torchs.abs().max().item<float>());
    model->set_probe({});
    logits(*model);
    EXPECT_EQ(seen.size(), layer_names(config).size());
  }
}

TEST(Models, NumbersThatAreNoPixelsAreNormalised) {
  ModelConfig config = mlp(8);
  config.normalise = true;
  const auto model = make_model(config);
  EXPECT_TRUE(model->named_buffers().contains("input_norm.running_mean"));
  EXPECT_FALSE(model->named_parameters().contains("input_norm.weight"));
}

TEST(Models, FormsOfWeightsHaveNames) {
  for (const WeightForm form : {WeightForm::usual, WeightForm::floating, WeightForm::integer})
    EXPECT_EQ(weight_form_of(name(form)), form);
  EXPECT_STREQ(name(WeightForm::floating), "float");
  EXPECT_STREQ(name(WeightForm::integer), "int8");
  EXPECT_EQ(refusal([] { weight_form_of("int4"); }), "the weights' form: expected usual, float or int8, got 'int4'");
}

TEST(Models, WhatCannotBeBuiltIsRefused) {
  const auto expect = [](const ModelConfig& config, const std::string& part) {
    const std::string sentence = refusal([&] { make_model(config); });
    EXPECT_NE(sentence.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
  };
  for (const int bits : {3, 0, -1, 2, 16, 64})
    expect(mlp(bits), "bits: expected 32, 8, 4 or 1, got " + std::to_string(bits));
  ModelConfig config = mlp(8);
  config.arch = "x";
  expect(config, "'x'");
  config.arch = "";
  expect(config, "''");
  for (const int bits : {3, -1, 2, 16, 64})
    expect(resnet(8, bits), "linear_bits: expected 32, 8, 4 or 1, got " + std::to_string(bits));
  config = mlp(8);
  config.linear_bits = 4;
  expect(config, "linear_bits is 4, but all layers of an mlp are linear");
  config.linear_bits = 0;
  config.width = 64;
  expect(config, "width is 64, but mlp has no width; these have one: lenet, vgg-small, resnet20");
  config = lenet(8);
  config.depth = 2;
  expect(config, "depth is 2, but lenet has no depth; these have one: mlp, vgg-small, resnet20");
  config = vgg(8);
  config.image = {3, 8, 7};
  expect(config, "at least 8x8, these are 8x7");
  config = lenet(8);
  config.image = {1, 8, 8};
  expect(config, "8x8");
  config.image = {1, 16, 15};
  expect(config, "16x15");
  config.image = {1, 16, 16};
  EXPECT_EQ(refusal([&] { make_model(config); }), "");
  for (const std::int64_t size :
       {std::int64_t{0}, std::int64_t{-5}, (std::int64_t{1} << 20) + 1, std::numeric_limits<std::int64_t>::max()}) {
    for (std::int64_t ModelConfig::*member : {&ModelConfig::classes, &ModelConfig::hidden}) {
      config = mlp(4);
      config.*member = size;
      expect(config, std::to_string(size));
    }
    for (std::optional<std::int64_t> ModelConfig::*member : {&ModelConfig::depth, &ModelConfig::width}) {
      config = vgg(4);
      config.*member = size;
      expect(config, ": expected 1 to ");
      expect(config, ", got " + std::to_string(size));
    }
    for (std::size_t i = 0; i < 3; ++i) {
      config = mlp(4);
      config.image[i] = size;
      expect(config, std::to_string(size));
    }
  }
}

TEST(Models, AModuleSetsAllOfItsLayersAndALayerItself) {
  for (const char* arch : {"mlp", "lenet"}) {
    const auto model = make_model({.arch = arch, .bits = 4, .image = {1, 16, 16}, .hidden = 9});
    ASSERT_GE(model->quant_layers().size(), 2u);
    layers::set_grad_mode(*model, ops::GradMode::reference);
    for (const auto& layer : model->quant_layers()) EXPECT_EQ(layer->grad_mode(), ops::GradMode::reference);
    model->quant_layers()[0]->set_grad_mode(ops::GradMode::exact);
    EXPECT_EQ(model->quant_layers()[0]->grad_mode(), ops::GradMode::exact);
    EXPECT_EQ(model->quant_layers()[1]->grad_mode(), ops::GradMode::reference);
    layers::set_compat(*model, layers::Compat::bie_0_2_6);
    for (const auto& layer : model->quant_layers()) EXPECT_EQ(layer->compat(), layers::Compat::bie_0_2_6);
    EXPECT_EQ(model->quant_layers()[0]->grad_mode(), ops::GradMode::reference);
    layers::set_compat(*model, layers::Compat::none);
    EXPECT_EQ(model->quant_layers()[0]->grad_mode(), ops::GradMode::exact);
  }
  layers::Q8LinearImpl alone(7, 5);
  layers::set_grad_mode(alone, ops::GradMode::reference);
  EXPECT_EQ(alone.grad_mode(), ops::GradMode::reference) << "the module itself";
}

}  // namespace
}  // namespace bie::models::test
