// The linear layers against the formulas of docs/spec/binary-linear.md and docs/spec/nbit-linear.md, and what only one
// of them does.
#include "bie/layers/linear.h"

#include <ATen/ops/where.h>

#include <cmath>

#include "bie/kernels/binary_gemm.h"
#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

struct Numbers {
  at::Tensor x, weight, bias;
};

/// A layer with a bias, and copies of what it started from.
Numbers start(IntegerLayer& layer, std::uint64_t seed) {
  const at::NoGradGuard no_grad;
  layer.bias_a.copy_(numbers(layer.bias_a.sizes(), seed).mul(0.3));
  return {numbers({6, layer.bias_a.size(0)}, seed + 1), layer.weight.detach().clone(), layer.bias_a.detach().clone()};
}

/// clamp(rint(v / s)) for s = c * mean|of|.
struct Quantized {
  at::Tensor codes;
  float scale;
};
Quantized quantize(const at::Tensor& v, const at::Tensor& of, double c, double lo, double hi) {
  const float scale = static_cast<float>(of.to(at::kDouble).abs().mean().item<double>() * c);
  return {v.div(scale).round().clamp(lo, hi), scale};
}

TEST(QLinear, OutputsAreTheProductOfTheCodes) {
  for (const int bits : {8, 4})
    for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{7, 3}, {65, 33}}) {
      at::manual_seed(3);
      std::shared_ptr<IntegerLayer> layer;
      if (bits == 8)
        layer = std::make_shared<Q8LinearImpl>(in, out);
      else
        layer = std::make_shared<Q4LinearImpl>(in, out);
      const Numbers n = start(*layer, 11);
      const double c = bits == 8 ? 2 / 11.269 : 2 / 5.6345, hi = bits == 8 ? 127 : 7;
      const Quantized a = quantize(n.x.add(n.bias), n.x, c, -hi - 1, hi);
      const Quantized w = quantize(n.weight, n.weight, c, -hi - 1, hi);
      const at::Tensor wanted = a.codes.mm(w.codes.t()).mul(a.scale * w.scale);
      EXPECT_TRUE(run_training(*layer, n.x).allclose(wanted, 1e-6, 1e-7)) << bits;
      EXPECT_TRUE(run_eval(*layer, n.x).allclose(wanted, 1e-6, 1e-7)) << bits;
    }
}

TEST(BinaryLinear, OutputsAreTheProductOfTheSigns) {
  for (const bool latent : {false, true}) {
    at::manual_seed(3);
    BinaryLinearImpl layer(BinaryLinearOptions{.in_features = 65, .out_features = 33, .latent = latent});
    const Numbers n = start(layer, 11);
    const auto signs = [](const at::Tensor& v) { return v.ge(0).to(at::kFloat).mul(2).sub(1); };
    // Preparing centres the weight; a latent weight keeps its own signs.
    const at::Tensor w = signs(latent ? n.weight : n.weight.sub(n.weight.mean(at::kDouble).to(at::kFloat)));
    const float scale = static_cast<float>(2 * n.x.to(at::kDouble).abs().mean().item<double>() *
                                           n.weight.to(at::kDouble).abs().mean().item<double>());
    const at::Tensor wanted = signs(n.x.add(n.bias)).mm(w.t()).mul(scale);
    EXPECT_TRUE(run_training(layer, n.x).allclose(wanted, 1e-6, 1e-7)) << latent;
    EXPECT_TRUE(run_eval(layer, n.x).allclose(wanted, 1e-6, 1e-7)) << latent;
  }
}

TEST(BinaryLinear, PreparingMakesTheWeightInt8Once) {
  at::manual_seed(3);
  BinaryLinearImpl layer(33, 5);
  const at::Tensor start = layer.weight.detach().clone();
  layer.prepare_params();
  EXPECT_EQ(layer.weight.scalar_type(), at::kChar);
  EXPECT_FALSE(layer.weight.requires_grad());
  EXPECT_TRUE(layer.named_parameters()["weight"].is_same(layer.weight));
  EXPECT_FALSE(layer.weight.eq(0).any().item<bool>());
  EXPECT_FLOAT_EQ(layer.scale_w.item<float>(), static_cast<float>(start.to(at::kDouble).abs().mean().item<double>()));
  const at::Tensor centred = start.sub(start.mean());
  EXPECT_TRUE(layer.weight.gt(0).equal(centred.gt(0)));
}

TEST(BinaryLinear, TheIntegerGradientIsInt8AndNeedsNoOtherLeaf) {
  at::manual_seed(3);
  BinaryLinearImpl layer(33, 5);
  layer.scale_a.set_requires_grad(false);
  layer.bias_a.set_requires_grad(false);
  const at::Tensor x = numbers({8, 33}, 1), g = numbers({8, 5}, 2);
  layer.forward(x).mul(g).sum().backward();
  const at::Tensor grad = layer.weight.grad();
  ASSERT_TRUE(grad.defined());
  EXPECT_EQ(grad.scalar_type(), at::kChar);
  // The largest gradient is 127; the rest is in proportion.
  const at::Tensor exact = g.t().mm(x.sign());
  EXPECT_TRUE(exact.mul(127 / exact.max()).round().clamp(-127, 127).sub(grad).abs().le(1).all().item<bool>());
}

TEST(BinaryLinear, ALatentWeightStaysFloatAndGetsAFloatGradient) {
  at::manual_seed(3);
  BinaryLinearImpl layer(BinaryLinearOptions{.in_features = 33, .out_features = 5, .latent = true});
  const at::Tensor x = numbers({8, 33}, 1), g = numbers({8, 5}, 2), before = layer.weight.detach().clone();
  layer.forward(x).mul(g).sum().backward();
  EXPECT_EQ(layer.weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(layer.weight.equal(before));
  EXPECT_TRUE(layer.weight.requires_grad());
  const at::Tensor exact = g.t().mm(x.sign()).mul(layer.scale_a.detach());
  EXPECT_TRUE(layer.weight.grad().allclose(exact, 1e-5, 1e-5));
}

TEST(BinaryLinear, ZeroWeightsPrepareAsPlusOne) {
  BinaryLinearImpl layer(7, 3);
  {
    const at::NoGradGuard no_grad;
    layer.weight.zero_();
  }
  layer.prepare_params();
  EXPECT_TRUE(layer.weight.eq(1).all().item<bool>());
}

TEST(Q4Linear, TheWeightScaleIsFixedByPreparing) {
  at::manual_seed(3);
  Q4LinearImpl layer(33, 5);
  const at::Tensor x = numbers({8, 33}, 1);
  run_training(layer, x);
  const float scale = layer.scale_w.item<float>();
  EXPECT_FLOAT_EQ(scale, static_cast<float>(2 * layer.weight.to(at::kDouble).abs().mean().item<double>() / 5.6345));
  {
    const at::NoGradGuard no_grad;
    layer.weight.mul_(3);
  }
  layer.prepare_params();
  const at::Tensor y = run_training(layer, x);
  EXPECT_EQ(layer.scale_w.item<float>(), scale);
  EXPECT_TRUE(run_eval(layer, x).equal(y));
}

TEST(Q8Linear, TheWeightScaleIsTakenAnewInEachForward) {
  at::manual_seed(3);
  Q8LinearImpl layer(33, 5);
  const at::Tensor x = numbers({8, 33}, 1);
  const at::Tensor y = run_training(layer, x);
  {
    const at::NoGradGuard no_grad;
    layer.weight.mul_(2);
  }
  EXPECT_TRUE(run_training(layer, x).equal(y.mul(2)));
  EXPECT_TRUE(run_eval(layer, x).equal(y.mul(2)));
  EXPECT_EQ(layer.scale_w.item<float>(), 1) << "the buffer changes only when qweight is asked for";
}

template <class Layer>
std::pair<at::Tensor, at::Tensor> gradients(ops::GradMode mode, float* step) {
  at::manual_seed(3);
  Layer layer(QLinearOptions{.in_features = 33, .out_features = 5, .grad_mode = mode});
  const at::Tensor x = numbers({8, 33}, 1).requires_grad_();
  layer.forward(x).mul(numbers({8, 5}, 2)).sum().backward();
  *step = layer.scale_a.template item<float>();
  return {x.grad(), layer.scale_a.grad()};
}

// docs/spec/nbit-linear.md#backward-at-8-bits: `reference` multiplies the gradient of x by scale_a;
// docs/spec/nbit-linear.md#q4linear: at 4 bits it differs in scale_a's gradient alone.
TEST(QLinear, TheGradientModeReachesTheOperator) {
  float step = 0;
  const auto exact8 = gradients<Q8LinearImpl>(ops::GradMode::exact, &step);
  const auto reference8 = gradients<Q8LinearImpl>(ops::GradMode::reference, &step);
  EXPECT_TRUE(reference8.first.allclose(exact8.first.mul(step), 1e-5, 1e-7));
  EXPECT_FALSE(reference8.second.allclose(exact8.second, 1e-3));
  const auto exact4 = gradients<Q4LinearImpl>(ops::GradMode::exact, &step);
  const auto reference4 = gradients<Q4LinearImpl>(ops::GradMode::reference, &step);
  EXPECT_TRUE(reference4.first.equal(exact4.first));
  EXPECT_FALSE(reference4.second.allclose(exact4.second, 1e-3));
}

TEST(BinaryLinear, EveryKernelGivesTheSameNumbers) {
  at::manual_seed(3);
  for (const std::int64_t k : {7, 65, 256}) {
    BinaryLinearImpl layer(k, 33);
    const at::Tensor x = numbers({9, k}, 1);
    EXPECT_EQ(layer.gemm_kernel_id(), 3) << "automatic";
    const at::Tensor y = run_training(layer, x);
    const std::int64_t rows = kernels::b1xb1_gemm_table().count;
    ASSERT_GE(rows, 2);
    std::vector<std::int64_t> ids{-7, 0, 3, 9, 99, 100 + rows, 1 << 20};  // automatic, or unknown: automatic too
    for (std::int64_t row = 0; row < rows; ++row) ids.push_back(100 + row);
    const auto before = state(layer);
    for (const std::int64_t id : ids) {
      layer.set_gemm_kernel_id(id);
      EXPECT_EQ(layer.gemm_kernel_id(), id);
      EXPECT_TRUE(run_eval(layer, x).equal(y)) << id;
      EXPECT_TRUE(run_training(layer, x).equal(y)) << id;
    }
    expect_same(before, state(layer));  // never in a state dict
  }
}

TEST(BinaryLinear, TheKernelIsChangedInEvaluationToo) {
  BinaryLinearImpl layer(65, 33);
  const at::Tensor x = numbers({9, 65}, 1), y = run_eval(layer, x);
  for (std::int64_t row = 0; row < kernels::b1xb1_gemm_table().count; ++row) {
    layer.set_gemm_kernel_id(100 + row);
    EXPECT_TRUE(run(layer, x).equal(y)) << row;
  }
}

TEST(BinaryLinear, AKernelIsSelected) {
  BinaryLinearImpl layer(65, 33);
  const at::Tensor x = numbers({2, 3, 65}, 1), y = run_training(layer, x);
  layer.select_gemm_kernel(x);
  EXPECT_GE(layer.gemm_kernel_id(), 100);
  EXPECT_LT(layer.gemm_kernel_id(), 100 + kernels::b1xb1_gemm_table().count);
  EXPECT_TRUE(run_training(layer, x).equal(y));
  EXPECT_TRUE(run_eval(layer, x).equal(y));
  const std::int64_t id = layer.gemm_kernel_id();
  const std::string sentence = refusal([&] { layer.select_gemm_kernel(numbers({2, 7}, 1)); });
  EXPECT_NE(sentence.find("[2, 7]"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("65"), std::string::npos) << sentence;
  EXPECT_NE(refusal([&] { layer.select_gemm_kernel(at::full({}, 1.0)); }), "");
  EXPECT_NE(refusal([&] { layer.select_gemm_kernel(numbers({0, 65}, 1)); }), "");
  EXPECT_EQ(layer.gemm_kernel_id(), id);
}

TEST(Linear, SizesThatAreNotPositiveAreRefused) {
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 0}, {-1, 3}, {3, -7}}) {
    EXPECT_NE(refusal([&, i = in, o = out] { BinaryLinearImpl(i, o); }), "") << in << " " << out;
    EXPECT_NE(refusal([&, i = in, o = out] { Q8LinearImpl(i, o); }), "") << in << " " << out;
    EXPECT_NE(refusal([&, i = in, o = out] { Q4LinearImpl(i, o); }), "") << in << " " << out;
  }
}

}  // namespace
}  // namespace bie::layers::test
