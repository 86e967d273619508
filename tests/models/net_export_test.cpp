// Exported nets give the logits of the modules in evaluation, to the bit.
#include "bie/models/net_export.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "bie/runtime/net.h"
#include "tests/models/trained_model.h"

namespace bie::models {
namespace {

using formats::NetElement, formats::NetFile;
using runtime::NetOp;

at::Tensor run(const NetFile& net, const at::Tensor& images, std::int64_t classes, int threads = 1,
               std::int64_t max_batch = 4) {
  const std::vector<std::uint8_t> bytes = formats::net_bytes(net);
  const runtime::SharedNet shared(bytes.data(), bytes.size());
  bie_options options{};
  options.threads = threads;
  options.max_batch = max_batch;
  runtime::Context context(shared, options);
  const at::Tensor logits = at::empty({images.size(0), classes});
  context.run(images.contiguous().const_data_ptr<float>(), images.size(0), logits.mutable_data_ptr<float>());
  return logits;
}

std::size_t count(const NetFile& net, NetOp op) {
  return static_cast<std::size_t>(
      std::count_if(net.nodes.begin(), net.nodes.end(), [&](const auto& node) { return runtime::op_of(node) == op; }));
}

/// Values of that kind of element that flow between the nodes.
std::size_t count(const NetFile& net, NetElement element) {
  return static_cast<std::size_t>(
      std::count_if(net.values.begin(), net.values.end(), [&](const auto& value) { return value.element == element; }));
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// BatchNorms as training can leave them: some scales below zero and one of zero, biases and slopes of every size.
void make_uneven(Classifier& model, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    at::Tensor& p = item.value();
    const std::string& name = item.key();
    if (name.ends_with("norm.weight") || name.ends_with("norm.bias")) p.copy_(test::numbers(p.sizes(), seed++));
    if (name.ends_with("norm.weight")) p[0].fill_(0);
    if (name.ends_with("bias_a")) p.copy_(test::numbers(p.sizes(), seed++).mul(0.2));
  }
}

bool has_few_bits(const Classifier& model) { return !model.quant_layers().empty(); }

void expect_same_logits(Classifier& model, const std::string& what) {
  const at::NoGradGuard no_grad;
  model.eval();
  const ModelConfig& c = model.config();
  const at::Tensor images = test::images(c, 9), expected = model.forward(images);
  for (const bool folds : {false, true}) {
    const at::Tensor logits = run(exported_net(model, folds), images, c.classes, /*threads=*/folds ? 3 : 1);
    const std::string how = what + (folds ? ", folded" : "");
    if (has_few_bits(model))
      ASSERT_TRUE(same_bits(logits, expected)) << how << '\n' << logits << '\n' << expected;
    else  // torch's own sums
      ASSERT_TRUE(logits.allclose(expected, 1e-4, 1e-5)) << how << '\n' << logits << '\n' << expected;
  }
}

/// The models of every_model whose exports differ, and more.
std::vector<ModelConfig> more_models() {
  std::vector<ModelConfig> configs;
  for (const ModelConfig& c : test::every_model())
    if (c.weights == WeightForm::usual && (c.arch != "resnet20" || c.linear_bits != 0)) configs.push_back(c);
  for (const int bits : {8, 4, 1})
    for (const bool first : {false, true})
      for (const char* arch : {"mlp", "lenet", "vgg-small", "resnet20"}) {
        ModelConfig c{.arch = arch, .bits = bits, .image = {3, 17, 20}, .classes = 4, .hidden = 33};
        c.quantise_first = first;
        if (arch != std::string("mlp")) c.width = 6;
        if (first) c.bits_of = {{"head", bits}};
        configs.push_back(c);
      }
  const auto conv = [](std::int64_t out, std::int64_t size, std::int64_t stride, int bits, Activation act) {
    return LayerSpec{LayerSpec::Type::conv, out, size, stride, size / 2, bits, act};
  };
  const LayerSpec pool{LayerSpec::Type::pool, 0, 3, 1, 0, 0, Activation::none};
  const LayerSpec linear{LayerSpec::Type::linear, 9, 0, 1, 0, 0, Activation::relu};
  for (const int bits : {8, 4, 1}) {
    ModelConfig c{.arch = "custom", .bits = bits, .image = {2, 14, 13}, .classes = 5};
    c.layers = {conv(5, 3, 1, bits, Activation::none), conv(7, 3, 2, bits, Activation::relu), pool, linear, linear};
    configs.push_back(c);
    c.layers = {pool, conv(5, 1, 1, 0, Activation::prelu), pool, conv(6, 3, 1, bits, Activation::prelu)};
    configs.push_back(c);
    c.layers = {linear, linear};
    configs.push_back(c);
  }
  return configs;
}

TEST(ExportedNet, GivesTheLogitsOfTheModulesToTheBit) {
  for (const ModelConfig& c : more_models()) {
    const auto model = test::trained(c);
    make_uneven(*model, 40);
    expect_same_logits(*model, test::describe(c) + ", uneven");
    if (HasFatalFailure()) return;
  }
}

TEST(ExportedNet, HasSignsAndCodesBetweenItsLayers) {
  ModelConfig c{.arch = "vgg-small", .bits = 1, .image = {3, 16, 16}, .classes = 4, .width = 8};
  const NetFile signs = exported_net(*test::trained(c));
  EXPECT_EQ(count(signs, NetOp::threshold), 4u) << "between the five convolutions of signs";
  EXPECT_EQ(count(signs, NetElement::s32), 4u);
  c.bits = 4;
  const NetFile codes = exported_net(*test::trained(c));
  EXPECT_EQ(count(codes, NetElement::s8), 5u) << "before each of the five convolutions of codes";
  EXPECT_EQ(count(codes, NetOp::threshold), 0u);
  const NetFile plain = exported_net(*test::trained(c), /*folds=*/false);
  EXPECT_EQ(count(plain, NetElement::s8), 0u);
  ModelConfig mlp{"mlp", 1, {1, 7, 5}, 3, 33, 2};
  EXPECT_EQ(count(exported_net(*test::trained(mlp)), NetElement::bits), 1u) << "packed between linears of signs";
}

TEST(ExportedNet, RefusesWhatTheModulesRefuse) {
  const ModelConfig c{.arch = "lenet", .bits = 8, .image = {1, 17, 20}, .classes = 4, .hidden = 9};
  const auto model = test::trained(c);
  model->eval();
  at::Tensor images = test::images(c);
  images[5][0][3][3] = std::numeric_limits<float>::quiet_NaN();
  try {
    run(exported_net(*model), images, c.classes);
    FAIL() << "NaN was taken";
  } catch (const runtime::NetError& error) {
    EXPECT_EQ(error.status, BIE_BAD_VALUES);
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
}

TEST(ExportedNet, OfAModelThatWasNotTrainedIsASentence) {
  const auto model = make_model({.arch = "lenet", .bits = 4, .image = {1, 17, 20}, .classes = 4, .hidden = 9});
  EXPECT_THROW(exported_net(*model), c10::ValueError);
}

TEST(ExportedNet, SaysWhatItsModelIs) {
  ModelConfig c{"mlp", 8, {1, 7, 5}, 3, 33, 2};
  c.class_names = {"cat", "dog", "a bird"};
  const NetFile net = exported_net(*test::trained(c));
  EXPECT_EQ(net.metadata.at("arch"), "mlp");
  EXPECT_EQ(net.metadata.at("image"), "1,7,5");
  EXPECT_EQ(net.metadata.at("classes"), "cat\ndog\na bird");
  EXPECT_EQ(net.metadata.at("input"), "unit");
}

}  // namespace
}  // namespace bie::models
