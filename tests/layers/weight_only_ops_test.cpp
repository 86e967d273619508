// The C++ functions of weights of packed codes and of embeddings reach their operators with their arguments in order.
#include "bie/ops/weight_only.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace bie::ops {
namespace {

struct Weight {
  at::Tensor codes = at::randint(0, 16, {40, 6}, at::kInt);
  at::Tensor whole = at::randint(1, 17, {2, 6}, at::kInt);
  CodedWeightTensors tensors;
  at::Tensor values;

  Weight() {
    tensors.qweight = pack_words(codes, 4);
    tensors.scales = at::rand({2, 6}) + 0.5;
    tensors.zeros = pack_words(whole - 1, 4, 1);
    tensors.bits = 4;
    tensors.group_size = 20;
    const at::Tensor group = at::arange(40) / 20;
    const at::Tensor rows = group.floor().to(at::kLong);
    values = tensors.scales.index_select(0, rows) * (codes - whole.index_select(0, rows));
  }
};

TEST(WeightOnlyOps, WordsOpenAndPack) {
  const Weight w;
  EXPECT_TRUE(at::equal(unpack_words(w.tensors.qweight, 4, 40), w.codes));
  EXPECT_TRUE(at::equal(weight_only_open(w.tensors, 40), w.values));
  EXPECT_EQ(weight_only_open(w.tensors, 40, at::kHalf).scalar_type(), at::kHalf);
  EXPECT_TRUE(at::equal(weight_only_pack(w.values, w.tensors), w.tensors.qweight));
}

TEST(WeightOnlyOps, LinearAndItsGradients) {
  const Weight w;
  const at::Tensor x = at::randn({3, 40}).requires_grad_(), bias = at::randn({6}), g = at::randn({3, 6});
  WeightOnlyLinearOptions options;
  options.channel_scale = at::rand({40});
  options.anchor = at::zeros({1}).expand({40, 6}).requires_grad_();
  const at::Tensor y = weight_only_linear(x, w.tensors, bias, options), xs = x.detach() * options.channel_scale;
  EXPECT_TRUE(at::allclose(y, xs.mm(w.values) + bias, 1e-4, 1e-3));
  y.backward(g);
  EXPECT_TRUE(at::allclose(options.anchor.grad(), xs.t().mm(g), 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(x.grad(), g.mm(w.values.t()) * options.channel_scale, 1e-4, 1e-3));
  options.panels = weight_only_prepack(w.tensors, 40);
  EXPECT_TRUE(at::equal(weight_only_linear(x, w.tensors, bias, options), y));
}

TEST(WeightOnlyOps, StepMovesMomentsAndCodes) {
  const Weight w;
  const at::Tensor before = w.tensors.qweight.clone(), grad = at::randn({40, 6});
  const at::Tensor l = at::zeros({40, 6}), s = at::zeros({40, 6});
  const at::Tensor rest = at::zeros({40, 6}, at::kBFloat16);
  DiodeMixStep step;
  step.lr = 0.5, step.beta1 = 0.5, step.beta2 = 0.75;
  diode_mix_weight_only_(w.tensors, grad, l, s, rest, /*moves_zeros=*/false, step);
  EXPECT_TRUE(at::allclose(l, grad * 0.5));
  EXPECT_TRUE(at::allclose(s, grad * grad * 0.25));
  EXPECT_FALSE(at::equal(w.tensors.qweight, before));
  EXPECT_TRUE(rest.to(at::kFloat).abs().max().item<float>() > 0);
}

TEST(WeightOnlyOps, Embeddings) {
  const at::Tensor signs = at::where(at::rand({5, 11}) < 0.5, -1.0, 1.0), packed = pack_signs(signs.to(at::kFloat));
  const at::Tensor scale = at::rand({5, 1}), indices = at::tensor({4, 0, 4}, at::kInt), g = at::randn({3, 11});
  EmbeddingOptions options;
  options.padding_idx = -5;
  options.anchor = at::zeros({1}).expand({5, 11}).requires_grad_();
  const at::Tensor y = binary_embedding(indices, packed, scale, 11, at::kFloat, options);
  EXPECT_TRUE(at::equal(
      y.detach(),
      (signs * scale).to(at::kFloat).index_select(0, indices).mul(at::tensor({1, 0, 1}, at::kFloat).view({3, 1}))));
  y.backward(g);
  const at::Tensor grad = options.anchor.grad().coalesce();
  EXPECT_TRUE(at::equal(grad.indices()[0], at::tensor({4}, at::kLong)));
  EXPECT_TRUE(at::allclose(grad.values()[0], (g[0] + g[2]) * scale[4]));
  const at::Tensor bag = binary_embedding_bag(at::tensor({1, 1, 2}, at::kInt).view({1, 3}), packed, 11);
  EXPECT_TRUE(at::equal(bag[0], signs[1].to(at::kFloat)));

  const at::Tensor moment = at::zeros({5, 11}), votes = at::randn({1, 11});
  DiodeMixStep step;
  step.lr = 1, step.beta2 = 0.5;
  diode_mix_embedding_(packed, at::tensor({3}, at::kLong), votes, moment, 11, step);
  EXPECT_TRUE(at::allclose(moment[3], at::where(votes[0] >= 0, 0.5, -0.5).to(at::kFloat)));
  EXPECT_TRUE(
      at::equal(unpack_signs(packed, 11)[3].to(at::kFloat), at::where(votes[0] >= 0, -1.0, 1.0).to(at::kFloat)));
}

}  // namespace
}  // namespace bie::ops
