// The convolutions against conv2d on codes and signs (docs/spec/binary-conv2d.md, docs/spec/nbit-conv2d.md), packed
// shapes, memory formats.
#include "bie/layers/conv2d.h"

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/where.h>

#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

struct ConvCase {
  QConv2dOptions options;
  std::vector<std::int64_t> x;
};

const ConvCase conv_cases[] = {
    {{1, 1, {1, 1}}, {1, 1, 1, 1}},
    {{3, 5, {3, 2}, {2, 1}, {1, 0}, {1, 2}}, {2, 3, 7, 6}},
    {{8, 33, {5, 5}, {1, 1}, {2, 2}}, {2, 8, 5, 9}},
    {{7, 4, {1, 3}, {1, 3}, {0, 4}, {2, 2}}, {3, 7, 4, 11}},
    {{12, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2}, {2, 12, 5, 5}},
    {{6, 9, {3, 2}, {1, 2}, {1, 1}, {1, 1}, 3}, {1, 6, 5, 7}},
};

std::shared_ptr<IntegerLayer> make(int bits, const QConv2dOptions& options) {
  at::manual_seed(3);
  if (bits == 8) return std::make_shared<Q8Conv2dImpl>(options);
  return std::make_shared<Q4Conv2dImpl>(options);
}

at::Tensor codes(const at::Tensor& v, float scale, double hi) { return v.div(scale).round().clamp(-hi - 1, hi); }

float step(const at::Tensor& v, double c) {
  return static_cast<float>(v.to(at::kDouble).abs().mean().item<double>() * c);
}

TEST(QConv2d, OutputsAreTheConvolutionOfTheCodes) {
  for (const int bits : {8, 4})
    for (const auto& [o, shape] : conv_cases) {
      const auto layer = make(bits, o);
      const at::Tensor x = numbers(shape, 5), w = layer->weight.detach();
      {
        const at::NoGradGuard no_grad;
        layer->bias_a.copy_(numbers({o.in_channels}, 6).mul(0.3));
      }
      const double c = bits == 8 ? 2 / 11.269 : 2 / 5.6345, hi = bits == 8 ? 127 : 7;
      const float sa = step(x, c), sw = step(w, c);
      // The padding is the code 0: the bias is not added there.
      const at::Tensor a = codes(x.add(layer->bias_a.detach().view({1, -1, 1, 1})), sa, hi);
      const at::Tensor wanted =
          at::conv2d(a.to(at::kDouble), codes(w, sw, hi).to(at::kDouble), {}, o.stride, o.padding, o.dilation, o.groups)
              .mul(sa * sw)
              .to(at::kFloat);
      const at::Tensor y = run_training(*layer, x);
      ASSERT_EQ(y.sizes(), wanted.sizes());
      EXPECT_TRUE(y.allclose(wanted, 1e-5, 1e-7)) << bits << " bits, x is " << x.sizes();
      EXPECT_TRUE(run_eval(*layer, x).equal(y));
      layer->generate_quantized_weight(true);
      EXPECT_TRUE(run_eval(*layer, x).equal(y));
    }
}

const BinaryConv2dOptions binary_cases[] = {
    {1, 1, {1, 1}},
    {3, 5, {3, 2}, {2, 1}, {1, 0}, {1, 2}},
    {16, 33, {5, 5}, {1, 1}, {2, 2}},
    {16, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2},
    {6, 9, {3, 1}, {1, 2}, {1, 1}, {1, 1}, 3},
};

at::Tensor signs(const at::Tensor& v) { return at::where(v.ge(0), 1.0, -1.0).to(at::kDouble); }

TEST(BinaryConv2d, OutputsAreTheConvolutionOfTheSigns) {
  for (const int padding_value : {-1, 0})
    for (BinaryConv2dOptions o : binary_cases) {
      at::manual_seed(3);
      o.padding_value = padding_value;
      BinaryConv2dImpl layer(o);
      const at::Tensor x = numbers({2, o.in_channels, 7, 6}, 5), w = layer.weight.detach().clone();
      {
        const at::NoGradGuard no_grad;
        layer.bias_a.copy_(numbers({o.in_channels}, 6).mul(0.3));
      }
      layer.prepare_params();
      const float sa = step(x, 2), sw = step(w, 1);
      // The padding has its own value: the bias is not added there.
      const at::Tensor a = at::constant_pad_nd(signs(x.add(layer.bias_a.detach().view({1, -1, 1, 1}))),
                                               {o.padding[1], o.padding[1], o.padding[0], o.padding[0]}, padding_value);
      const at::Tensor wanted =
          at::conv2d(a, signs(w.sub(w.mean())), {}, o.stride, at::IntArrayRef{0, 0}, o.dilation, o.groups)
              .mul(sa * sw)
              .to(at::kFloat);
      const at::Tensor y = run_training(layer, x);
      ASSERT_EQ(y.sizes(), wanted.sizes());
      EXPECT_TRUE(y.allclose(wanted, 1e-5, 1e-7)) << "padding " << padding_value << ", " << o.groups << " groups";
      EXPECT_TRUE(run_eval(layer, x).equal(y));
      layer.generate_quantized_weight(true);
      EXPECT_TRUE(run_eval(layer, x).equal(y));
      const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
      EXPECT_TRUE(run_eval(layer, last).equal(y));
    }
}

TEST(BinaryConv2d, AGroupedLayerTakesTheStateOfItsTwin) {
  const BinaryConv2dOptions o = {16, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 2};
  at::manual_seed(3);
  BinaryConv2dImpl source(o);
  const at::Tensor x = numbers({2, 16, 5, 5}, 5);
  run_training(source, x);
  EXPECT_EQ(source.bias_a.sizes(), at::IntArrayRef{16});
  const at::Tensor y = run_eval(source, x);
  for (const bool packed : {false, true}) {
    BinaryConv2dImpl twin(o);
    StateDict entries = source.state(packed);
    twin.check_state(entries, "")();
    EXPECT_TRUE(run_eval(twin, x).equal(y)) << (packed ? "packed" : "int8");
    EXPECT_STREQ(twin.weight_form(), packed ? "packed" : "int8");
  }
}

TEST(BinaryConv2d, PackedShapesAreTheDocumentedOnes) {
  using Shape = std::vector<std::int64_t>;
  const auto shape_of = [](const BinaryConv2dOptions& o) {
    BinaryConv2dImpl layer(o);
    layer.generate_quantized_weight(true);
    return layer.qweight.sizes().vec();
  };
  EXPECT_EQ(shape_of({16, 5, {3, 2}}), (Shape{5, 3, 2, 2}));
  EXPECT_EQ(shape_of({7, 5, {3, 2}}), (Shape{5, 6}));
  EXPECT_EQ(shape_of({16, 6, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 2}), (Shape{6, 3, 3, 1}));
}

// Packed bytes are in the order [in][kh][kw] whatever the shape says: one weight, one bit.
TEST(BinaryConv2d, OneWeightIsOneBitInTheOrderInKhKw) {
  for (std::int64_t i = 0; i < 48; ++i) {
    BinaryConv2dImpl one({8, 2, {3, 2}, {1, 1}, {0, 0}, {1, 1}, 1, -1, /*latent=*/true});
    {
      const at::NoGradGuard no_grad;
      one.weight.fill_(-1);
      one.weight[1].view(-1)[i].fill_(1);
    }
    one.generate_quantized_weight(true);
    at::Tensor bytes = one.qweight.view({2, 6}).clone();
    EXPECT_EQ(bytes[1][i / 8].item<int>(), 1 << (i % 8)) << i;
    bytes[1][i / 8].zero_();
    EXPECT_FALSE(bytes.ne(0).any().item<bool>()) << i;
  }
}

TEST(BinaryConv2d, WrongOptionsAndInputsAreRefused) {
  EXPECT_NE(refusal([] { BinaryConv2dImpl({3, 5, {0, 3}}); }), "");
  EXPECT_NE(refusal([] { BinaryConv2dImpl({0, 5, {3, 3}}); }), "");
  const auto grouped = [](std::int64_t groups) { BinaryConv2dImpl({4, 6, {3, 3}, {1, 1}, {0, 0}, {1, 1}, groups}); };
  for (const std::int64_t groups : {-1, 0, 3, 4}) {
    const std::string sentence = refusal([&] { grouped(groups); });
    EXPECT_NE(sentence.find("groups do not divide 4 and 6"), std::string::npos) << sentence;
  }
  const std::string padding = refusal([] {
    BinaryConv2dImpl({4, 6, {3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, /*padding_value=*/1});
  });
  EXPECT_NE(padding.find("padding_value: expected -1 or 0, got 1"), std::string::npos) << padding;
  BinaryConv2dImpl layer({3, 5, {3, 3}});
  const std::string rank = refusal([&] { layer.forward(numbers({3, 8}, 1)); });
  EXPECT_NE(rank.find("[3, 8]"), std::string::npos) << rank;
  const std::string small = refusal([&] { layer.forward(numbers({1, 3, 2, 8}, 1)); });
  EXPECT_NE(small.find("kernel"), std::string::npos) << small;
}

TEST(QConv2d, ChannelsLastGivesTheSameNumbers) {
  for (const int bits : {8, 4}) {
    const auto layer = make(bits, conv_cases[1].options);
    const at::Tensor x = numbers(conv_cases[1].x, 5), last = x.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor y = run_training(*layer, x);
    EXPECT_TRUE(run_training(*layer, last).equal(y));
    EXPECT_TRUE(run_eval(*layer, last).equal(y));
    EXPECT_TRUE(run_eval(*layer, last).is_contiguous(at::MemoryFormat::ChannelsLast));
  }
}

TEST(QConv2d, PackedShapesAreTheDocumentedOnes) {
  const auto shape_of = [](int bits, std::int64_t in) {
    const auto layer = make(bits, {in, 5, {3, 2}});
    layer->generate_quantized_weight(true);
    return layer->qweight.sizes().vec();
  };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape_of(8, 3), (Shape{5, 3, 3, 2}));
  EXPECT_EQ(shape_of(4, 4), (Shape{5, 3, 2, 2}));
  EXPECT_EQ(shape_of(4, 3), (Shape{5, 9}));
  const auto grouped = [](int bits) {
    const auto layer = make(bits, {8, 6, {3, 2}, {1, 1}, {0, 0}, {1, 1}, 2});
    EXPECT_EQ(layer->bias_a.sizes(), at::IntArrayRef{8});
    layer->generate_quantized_weight(true);
    return layer->qweight.sizes().vec();
  };
  EXPECT_EQ(grouped(8), (Shape{6, 4, 3, 2}));
  EXPECT_EQ(grouped(4), (Shape{6, 3, 2, 2}));
}

// Packed bytes are in the order [in][kh][kw] whatever the shape says: one weight, one nibble.
TEST(Q4Conv2d, OneWeightIsOneNibbleInTheOrderInKhKw) {
  const auto layer = make(4, {4, 2, {3, 2}});
  for (std::int64_t i = 0; i < 24; ++i) {
    Q4Conv2dImpl one({4, 2, {3, 2}});
    {
      const at::NoGradGuard no_grad;
      one.weight.zero_();
      one.weight[1].view(-1)[i].fill_(1);
    }
    one.generate_quantized_weight(true);
    at::Tensor bytes = one.qweight.view({2, 12}).clone();
    // 1 / scale is beyond the range: the code is 7.
    EXPECT_EQ(bytes[1][i / 2].item<int>(), i % 2 == 0 ? 0x70 : 0x07) << i;
    bytes[1][i / 2].zero_();
    EXPECT_FALSE(bytes.ne(0).any().item<bool>()) << i;
  }
}

TEST(QConv2d, TheGradientModeReachesTheOperator) {
  for (const int bits : {8, 4}) {
    std::vector<at::Tensor> grads;
    for (const auto mode : {ops::GradMode::exact, ops::GradMode::reference}) {
      QConv2dOptions o = conv_cases[1].options;
      o.grad_mode = mode;
      const auto layer = make(bits, o);
      const at::Tensor y = layer->forward(numbers(conv_cases[1].x, 5));
      y.mul(numbers(y.sizes(), 2)).sum().backward();
      grads.push_back(layer->scale_a.grad());
    }
    EXPECT_FALSE(grads[0].allclose(grads[1], 1e-3)) << bits;
  }
}

TEST(QConv2d, WhatIsNoImageIsRefused) {
  for (const int bits : {8, 4}) {
    const auto layer = make(bits, {3, 5, {3, 3}});
    const std::string rank = refusal([&] { layer->forward(numbers({3, 8}, 1)); });
    EXPECT_NE(rank.find("[3, 8]"), std::string::npos) << rank;
    const std::string small = refusal([&] { layer->forward(numbers({1, 3, 2, 8}, 1)); });
    EXPECT_NE(small.find("kernel"), std::string::npos) << small;
  }
  for (const std::int64_t groups : {-1, 0, 3, 4}) {
    const std::string sentence = refusal([&] { Q8Conv2dImpl({4, 6, {3, 3}, {1, 1}, {0, 0}, {1, 1}, groups}); });
    EXPECT_EQ(sentence, "Q8Conv2d: " + std::to_string(groups) + " groups do not divide 4 and 6 channels");
  }
  EXPECT_NE(refusal([] { Q8Conv2dImpl({3, 5, {0, 3}}); }), "");
  EXPECT_NE(refusal([] { Q4Conv2dImpl({3, 5, {3, -1}}); }), "");
  EXPECT_NE(refusal([] { Q8Conv2dImpl({0, 5, {3, 3}}); }), "");
  EXPECT_NE(refusal([] { Q4Conv2dImpl({3, 0, {3, 3}}); }), "");
}

}  // namespace
}  // namespace bie::layers::test
