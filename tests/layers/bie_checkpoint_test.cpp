// load_bie_checkpoint on files of torch.save in every layout of BITorch Engine 0.2.6 (docs/spec/layouts.md): the
// output is that of a layer holding the same weights.
#include "bie/layers/bie_checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <stdexcept>

#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;
using bie::test::Scratch;

/// A file of bie_checkpoint_peer.py.
std::string file(const std::string& name) {
  static const Scratch folder;
  static const int status =
      std::system(("'" BIE_PYTHON "' '" BIE_CHECKPOINT_PEER "' '" + folder.folder() + "'").c_str());
  if (status != 0) throw std::runtime_error("bie_checkpoint_peer.py failed");
  return folder.path(name + ".pt");
}

/// The weights that the peer packs: numbers in [-count/2, count/2), or +-1 where count is 2.
at::Tensor weights(std::int64_t n, std::int64_t k, std::uint32_t count) {
  const at::Tensor w = at::empty({n, k});
  float* out = w.mutable_data_ptr<float>();
  for (std::uint32_t r = 0; r < n; ++r)
    for (std::uint32_t c = 0; c < k; ++c) {
      const std::uint32_t value = ((r * 40503u + c * 30011u + r * c * 7u) * 2654435761u >> 13) % count;
      *out++ = count == 2 ? (value == 1 ? 1.0f : -1.0f) : static_cast<float>(value) - static_cast<float>(count / 2);
    }
  return w;
}

at::Tensor bias_a(std::int64_t k) { return at::arange(k).remainder(5).mul(0.25).sub(0.5); }

struct BinaryCase {
  std::string name;
  std::int64_t in, out;
  bool plain = false;  ///< BinaryLinearCPP: no scales, no bias_a
};

TEST(BieCheckpoint, BinaryLayoutsHoldTheSameWeights) {
  for (const BinaryCase& c : std::vector<BinaryCase>{{"binary_cutlass_33_7", 33, 7},
                                                     {"binary_btc_128_16", 128, 16},
                                                     {"binary_btc_256_24", 256, 24},
                                                     {"binary_bstc_96_32", 96, 32},
                                                     {"binary_bstc_64_64", 64, 64},
                                                     {"binary_bstc_128_32_is_btc", 128, 32},
                                                     {"binary_columns_40_13", 40, 13, true},
                                                     {"binary_columns_128_16", 128, 16, true},
                                                     {"binary_float_40_13", 40, 13, true}}) {
    SCOPED_TRACE(c.name);
    BinaryLinearImpl layer(c.in, c.out);
    load_bie_checkpoint(layer, file(c.name));
    const at::Tensor w = weights(c.out, c.in, 2), x = numbers({6, c.in}, 1);
    EXPECT_STREQ(layer.weight_form(), "packed");
    EXPECT_TRUE(layer.qweight.equal(ops::pack_signs(w)));
    EXPECT_EQ(scale(layer), c.plain ? 1 : 0.75f);
    EXPECT_EQ(layer.scale_w.item<float>(), c.plain ? 1 : 0.125f);
    const at::Tensor xs = c.plain ? x : x.add(bias_a(c.in));
    const at::Tensor wanted = xs.ge(0).mul(2).sub(1).to(at::kFloat).mm(w.t()).mul(c.plain ? 1 : 0.75 * 0.125);
    EXPECT_TRUE(run_eval(layer, x).equal(wanted));
    EXPECT_TRUE(run_training(layer, x).equal(wanted));
  }
}

TEST(BieCheckpoint, ACutOffWeightIsAnErrorThatSaysSo) {
  BinaryLinearImpl layer(32, 33);
  const auto before = state(layer);
  expect_sentence(refusal([&] { load_bie_checkpoint(layer, file("binary_cut_32_33")); }), file("binary_cut_32_33"),
                  "cut the tail off");
  expect_same(before, state(layer));
}

TEST(BieCheckpoint, AnInt8BinaryWeightTrainsOn) {
  BinaryLinearImpl layer(33, 7);
  load_bie_checkpoint(layer, file("binary_int8_33_7"));
  EXPECT_STREQ(layer.weight_form(), "int8");
  EXPECT_TRUE(layer.weight.equal(weights(7, 33, 256).to(at::kChar)));
  layer.forward(numbers({6, 33}, 1)).sum().backward();
  EXPECT_TRUE(layer.weight.grad().defined());
}

/// A layer that holds these codes and the peer's scales.
template <class Layer>
Layer& holding(Layer& layer, const at::Tensor& weight, float scale_w) {
  layer.set_weight_data(weight);
  assign(layer.bias_a, bias_a(layer.bias_a.size(0)));
  assign(layer.scale_a, 0.046875);
  assign(layer.scale_w, scale_w);
  assign(layer.eps, 0x1p-10);
  return layer;
}

void expect_codes(IntegerLayer& layer, const std::string& name, const at::Tensor& codes, std::int64_t features,
                  const std::function<at::Tensor(const at::Tensor&)>& product, const at::Tensor& x) {
  SCOPED_TRACE(name);
  load_bie_checkpoint(layer, file(name));
  EXPECT_STREQ(layer.weight_form(), "packed");
  EXPECT_EQ(layer.eps.item<float>(), 0x1p-10f);
  const double hi = layer.weight_bits() == 8 ? 127 : 7;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[1] = features;
  const at::Tensor xs = x.add(bias_a(features).view(shape));
  const at::Tensor a = xs.div(0.046875).round().clamp(-hi - 1, hi);
  const at::Tensor wanted = product(a).mul(0.046875 * 0.125);
  EXPECT_TRUE(run_eval(layer, x).equal(wanted));
  const at::Tensor packed =
      layer.weight_bits() == 8 ? codes.to(at::kChar) : ops::pack_int4(codes.to(at::kChar).flatten(1));
  EXPECT_TRUE(layer.qweight.flatten().equal(packed.flatten()));
}

TEST(BieCheckpoint, NbitLinearLayoutsHoldTheSameWeights) {
  const at::Tensor x = numbers({6, 33}, 1);
  for (const int bits : {8, 4}) {
    const at::Tensor codes = weights(7, 33, 1u << bits);
    std::shared_ptr<IntegerLayer> layer = std::make_shared<Q8LinearImpl>(33, 7);
    if (bits == 4) layer = std::make_shared<Q4LinearImpl>(33, 7);
    const auto product = [&](const at::Tensor& a) { return a.mm(codes.t()); };
    expect_codes(*layer, bits == 8 ? "q8_packed" : "q4_packed", codes, 33, product, x);
  }
}

TEST(BieCheckpoint, ConvolutionLayoutsHoldTheSameWeights) {
  for (const char* name : {"conv_label", "conv_rows", "conv_flat"}) {
    Q4Conv2dImpl layer(QConv2dOptions{4, 5, {3, 2}});
    const at::Tensor codes = weights(5, 24, 16).view({5, 4, 3, 2});
    const auto product = [&](const at::Tensor& a) { return at::conv2d(a, codes); };
    expect_codes(layer, name, codes, 4, product, numbers({2, 4, 6, 5}, 1));
  }
  Q4Conv2dImpl odd(QConv2dOptions{3, 5, {3, 2}});
  const at::Tensor codes = weights(5, 18, 16).view({5, 3, 3, 2});
  const auto product = [&](const at::Tensor& a) { return at::conv2d(a, codes); };
  expect_codes(odd, "conv_odd", codes, 3, product, numbers({2, 3, 6, 5}, 1));
}

TEST(BieCheckpoint, AFloatWeightIsQuantisedAsThatOfALayerItself) {
  const at::Tensor x = numbers({6, 33}, 1), image = numbers({2, 4, 6, 5}, 1);
  Q8LinearImpl q8(33, 7), q8_wanted(33, 7);
  load_bie_checkpoint(q8, file("q8_float"));
  EXPECT_TRUE(run_eval(q8, x).equal(run_eval(holding(q8_wanted, weights(7, 33, 256).mul(0.01f), 0.125f), x)));
  Q4LinearImpl q4(33, 7), q4_wanted(33, 7);
  load_bie_checkpoint(q4, file("q4_float"));
  EXPECT_TRUE(run_eval(q4, x).equal(run_eval(holding(q4_wanted, weights(7, 33, 16).mul(0.125f), 0.125f), x)));
  EXPECT_TRUE(q4.opt_weight().equal(ops::pack_int4(weights(7, 33, 16).to(at::kChar)))) << "with the scale of the file";
  Q4Conv2dImpl conv(QConv2dOptions{4, 5, {3, 2}}), conv_wanted(QConv2dOptions{4, 5, {3, 2}});
  load_bie_checkpoint(conv, file("conv_float"));
  const at::Tensor w = weights(5, 24, 16).view({5, 4, 3, 2}).mul(0.125f);
  EXPECT_TRUE(run_eval(conv, image).equal(run_eval(holding(conv_wanted, w, 0.125f), image)));
}

// The codes follow the file's scale, not the one that the weight would get by itself.
TEST(BieCheckpoint, AFloatFourBitWeightBecomesCodesOfTheFilesScale) {
  const auto expect_codes_of = [](IntegerLayer& layer, const char* name, const at::Tensor& codes, const at::Tensor& x) {
    SCOPED_TRACE(name);
    load_bie_checkpoint(layer, file(name));
    EXPECT_STREQ(layer.weight_form(), "float");
    const at::Tensor y = run_eval(layer, x);
    EXPECT_TRUE(layer.state(/*packed=*/true).at("qweight").flatten().equal(ops::pack_int4(codes.flatten(1)).flatten()));
    EXPECT_TRUE(run_training(layer, x).equal(y));
    EXPECT_STREQ(layer.weight_form(), "int8");
    EXPECT_TRUE(layer.weight.equal(codes));
    EXPECT_EQ(layer.scale_w.item<float>(), 0.125f);
    EXPECT_TRUE(run_eval(layer, x).equal(y));
  };
  Q4LinearImpl linear(QLinearOptions{.in_features = 33, .out_features = 7, .latent = false});
  expect_codes_of(linear, "q4_float", weights(7, 33, 16).to(at::kChar), numbers({6, 33}, 1));
  QConv2dOptions options{4, 5, {3, 2}};
  options.latent = false;
  Q4Conv2dImpl conv(options);
  expect_codes_of(conv, "conv_float", weights(5, 24, 16).to(at::kChar).view({5, 4, 3, 2}), numbers({2, 4, 6, 5}, 1));
  conv.set_weight_data(weights(5, 24, 16).view({5, 4, 3, 2}));
  EXPECT_NE(conv.scale_w.item<float>(), 0.125f) << "another weight, another scale";
}

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", BinaryLinear(33, 7));
    second = register_module("second", Q4Linear(7, 3));
    head = register_module("head", torch::nn::Linear(3, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return head->forward(second->forward(first->forward(x))); }

  BinaryLinear first{nullptr};
  Q4Linear second{nullptr};
  torch::nn::Linear head{nullptr};
};

at::Tensor evaluate(Net& net) {
  const at::NoGradGuard no_grad;
  net.eval();
  return net.forward(numbers({6, 33}, 1));
}

TEST(BieCheckpoint, AWholeNetIsLoadedFromEveryKindOfFile) {
  Net wanted;
  load_bie_checkpoint(wanted, file("net"));
  EXPECT_TRUE(wanted.head->weight.equal(at::arange(6).view({2, 3}).mul(0.5)));
  EXPECT_TRUE(wanted.first->qweight.equal(ops::pack_signs(weights(7, 33, 2))));
  EXPECT_TRUE(informative(evaluate(wanted)));
  for (const char* name : {"net_checkpoint", "net_half", "net_parameters"}) {
    Net net;
    load_bie_checkpoint(net, file(name));
    EXPECT_TRUE(evaluate(net).equal(evaluate(wanted))) << name;
    expect_same(state(net), state(wanted));
  }
}

TEST(BieCheckpoint, WhatDoesNotFitIsOneSentenceAndChangesNothing) {
  Net net;
  evaluate(net);
  const auto before = state(net);
  const std::pair<const char*, const char*> cases[] = {
      {"missing", "the entry 'second.scale_a' is missing"},
      {"no_weight", "the entry 'first.weight' (or 'first.qweight') is missing"},
      {"extra", "the entry 'third.qweight' belongs to no layer"},
      {"extra_of_a_layer", "the entry 'first.zeros' belongs to no layer"},
      {"renamed", "'second.qweight'"},
      {"wrong_size", "the entry 'second.qweight': expected [3, 4] of int8, got [3, 5] of int8"},
      {"wrong_dtype", "the entry 'first.qweight': expected [7, 5] of uint8, got [7, 5] of int32"},
      {"wrong_bias", "the entry 'head.bias': expected [2] of float32, got [3] of float32"},
      {"nan_scale", "the entry 'second.scale_w' is nan"},
      {"q8_packed", "'first.qweight') is missing"},
      {"no_such_file", "No such file"},
  };
  for (const auto& [name, part] : cases) {
    expect_sentence(refusal([&, n = name] { load_bie_checkpoint(net, file(n)); }), file(name), part);
    expect_same(before, state(net));
  }
}

/// Collects warnings.
struct Warnings : c10::WarningHandler {
  void process(const c10::Warning& warning) override { text.push_back(warning.msg()); }
  std::vector<std::string> text;
};

TEST(BieCheckpoint, AConvolutionOfTheGpuIsWarnedAbout) {
  const auto warnings_of = [](std::int64_t h, std::int64_t w, const char* name) {
    Warnings warnings;
    const c10::WarningUtils::WarningHandlerGuard guard(&warnings);
    Q4Conv2dImpl conv(QConv2dOptions{4, 5, {h, w}});
    load_bie_checkpoint(conv, file(name));
    return warnings.text;
  };
  const auto large = warnings_of(3, 2, "conv_label");
  ASSERT_EQ(large.size(), 1u);
  EXPECT_NE(large[0].find(file("conv_label")), std::string::npos) << large[0];
  EXPECT_NE(large[0].find("computed no convolution"), std::string::npos) << large[0];
  EXPECT_TRUE(warnings_of(1, 1, "conv_point").empty()) << "a 1x1 convolution carries over";
}

}  // namespace
}  // namespace bie::layers::test
