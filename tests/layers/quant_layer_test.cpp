// Properties of every quantised layer: modes, forms of the weight, dtypes, gradients, refusals.
#include "bie/layers/quant_layer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

/// For all files of this program: layers this small only wait for other threads on a busy machine.
struct OneThread : testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
[[maybe_unused]] const auto* const one_thread = testing::AddGlobalTestEnvironment(new OneThread);

INSTANTIATE_TEST_SUITE_P(Layers, EveryLayer, testing::ValuesIn(every_layer()),
                         [](const auto& layer) { return layer.param.name; });

/// `qweight` of a copy of the layer's weight with its output channels in reverse.
at::Tensor reversed(const at::Tensor& qweight) { return qweight.flip(0).contiguous(); }

TEST_P(EveryLayer, TrainingAndEvaluationGiveTheSameBits) {
  const auto layer = make();
  const at::Tensor y = run_training(*layer, batch());
  EXPECT_TRUE(informative(y));
  EXPECT_TRUE(run_eval(*layer, batch()).equal(y));
  EXPECT_TRUE(run_eval(*layer, batch(2)).equal(run_training(*layer, batch(2))));
}

TEST_P(EveryLayer, PackingChangesNoOutput) {
  const auto layer = make();
  const at::Tensor y = run_training(*layer, batch());
  layer->generate_quantized_weight();
  EXPECT_TRUE(layer->weight.defined());
  EXPECT_TRUE(run_eval(*layer, batch()).equal(y));
  layer->generate_quantized_weight(/*qweight_only=*/true);
  EXPECT_FALSE(layer->weight.defined());
  EXPECT_FALSE(layer->named_parameters().contains("weight"));
  EXPECT_TRUE(layer->named_parameters().contains("qweight"));
  EXPECT_TRUE(run_eval(*layer, batch()).equal(y));
  EXPECT_TRUE(run_training(*layer, batch()).equal(y)) << "a packed layer runs in training too";
  const auto packed = state(*layer);
  layer->generate_quantized_weight(true);
  layer->prepare_params();
  expect_same(packed, state(*layer));
}

TEST_P(EveryLayer, EvaluationFollowsTheWeight) {
  const auto layer = make();
  run_training(*layer, batch());
  const at::Tensor before = run_eval(*layer, batch());
  layer->train();
  change(layer->weight);
  const at::Tensor after = run_eval(*layer, batch());
  EXPECT_FALSE(after.equal(before));
  EXPECT_TRUE(after.equal(run_training(*layer, batch())));
}

TEST_P(EveryLayer, EvaluationNoticesAChangeInPlaceAndNewData) {
  const auto layer = make();
  run_training(*layer, batch());
  for (const bool in_place : {true, false}) {
    const at::Tensor before = run_eval(*layer, batch());
    if (in_place) {
      change(layer->weight);
    } else {
      const at::Tensor other = layer->weight.detach().clone();
      change(other);
      layer->weight.set_data(other);
    }
    const at::Tensor after = run(*layer, batch());
    EXPECT_FALSE(after.equal(before));
    EXPECT_TRUE(after.equal(run_training(*layer, batch())));
  }
}

TEST_P(EveryLayer, RepackFollowsAWriteThroughData) {
  const auto layer = make();
  run_training(*layer, batch());
  const at::Tensor before = run_eval(*layer, batch());
  const at::Tensor other = layer->weight.detach().clone();
  change(other);
  layer->weight.data().copy_(other);
  layer->repack();
  const at::Tensor after = run(*layer, batch());
  EXPECT_FALSE(after.equal(before));
  EXPECT_TRUE(after.equal(run_training(*layer, batch())));
}

TEST_P(EveryLayer, AWriteThroughDataInTrainingIsSeenInEvaluation) {
  for (const bool explicitly : {false, true}) {
    const auto layer = make();
    const at::Tensor before = run_training(*layer, batch());
    if (explicitly)
      layer->generate_quantized_weight();
    else
      layer->state(/*packed=*/true);
    const at::Tensor other = layer->weight.detach().clone();
    change(other);
    layer->weight.data().copy_(other);
    const at::Tensor after = run_eval(*layer, batch());
    EXPECT_FALSE(after.equal(before));
    EXPECT_TRUE(after.equal(run_training(*layer, batch())));
  }
}

TEST_P(EveryLayer, EvaluationNoticesAChangedPackedWeight) {
  const auto layer = make();
  run_training(*layer, batch());
  layer->generate_quantized_weight(true);
  const at::Tensor y = run_eval(*layer, batch());
  {
    const at::NoGradGuard no_grad;
    layer->qweight.copy_(reversed(layer->qweight));
  }
  EXPECT_TRUE(run(*layer, batch()).equal(y.flip(GetParam().axis)));
}

TEST_P(EveryLayer, OptWeightIsWhatTheModeWants) {
  const auto layer = make();
  run_training(*layer, batch());
  EXPECT_TRUE(layer->opt_weight().is_same(layer->weight));
  layer->eval();
  const at::Tensor packed = layer->opt_weight().clone();
  layer->generate_quantized_weight();
  EXPECT_TRUE(packed.equal(layer->qweight));
  change(layer->weight);
  EXPECT_FALSE(layer->opt_weight().equal(packed));
  EXPECT_TRUE(layer->opt_weight().equal(layer->qweight)) << "a qweight that was asked for follows the weight";
  EXPECT_TRUE(layer->named_parameters()["qweight"].equal(layer->qweight));
}

TEST_P(EveryLayer, PackingInEvaluationLeavesTheStateAlone) {
  const auto layer = make();
  run_training(*layer, batch());
  const auto before = state(*layer);
  EXPECT_EQ(before.count("qweight"), 0u);
  run_eval(*layer, batch());
  expect_same(before, state(*layer));
  layer->train();
  expect_same(before, state(*layer));
}

TEST_P(EveryLayer, PreparingTwiceIsPreparingOnce) {
  const auto layer = make();
  layer->prepare_params();
  EXPECT_STREQ(layer->weight_form(), GetParam().latent ? "float" : "int8");
  EXPECT_EQ(layer->weight.requires_grad(), GetParam().latent);
  auto before = state(*layer);
  layer->prepare_params();
  expect_same(before, state(*layer));
  run_training(*layer, batch());
  before["scale_a"] = layer->scale_a.detach().clone();
  expect_same(before, state(*layer));
  layer->generate_quantized_weight(true);
  before = state(*layer);
  layer->prepare_params();
  expect_same(before, state(*layer));
}

TEST_P(EveryLayer, AnUntrainedLayerEvaluates) {
  const auto layer = make();
  EXPECT_TRUE(informative(run_eval(*layer, batch())));
  EXPECT_TRUE(at::isFloatingType(layer->weight.scalar_type())) << "evaluation prepares nothing";
}

TEST_P(EveryLayer, DtypesTouchNeitherScalesNorIntegers) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16})
    for (const bool packed : {false, true}) {
      const auto layer = make(/*bias=*/packed);
      run_training(*layer, batch());
      if (packed) layer->generate_quantized_weight(true);
      run_eval(*layer, batch());
      const auto before = state(*layer);
      layer->to(type);
      for (const auto& [name, tensor] : state(*layer)) {
        const at::Tensor& old = before.at(name);
        const bool kept =
            name == "scale_a" || name == "scale_w" || name == "eps" || !at::isFloatingType(old.scalar_type());
        EXPECT_EQ(tensor.scalar_type(), kept ? old.scalar_type() : type) << name;
        EXPECT_TRUE(tensor.equal(kept ? old : old.to(type))) << name;
      }
      const at::Tensor y = run_eval(*layer, batch().to(type));
      EXPECT_EQ(y.scalar_type(), type);
      EXPECT_TRUE(informative(y));
      EXPECT_TRUE(y.equal(run_training(*layer, batch().to(type))));
      layer->to(at::kFloat);
      EXPECT_EQ(run_eval(*layer, batch()).scalar_type(), at::kFloat);
      EXPECT_EQ(scale(*layer), before.at("scale_a").item<float>());
    }
}

TEST_P(EveryLayer, MovingToADeviceChangesNothing) {
  const auto layer = make();
  const at::Tensor y = run_training(*layer, batch());
  const auto before = state(*layer);
  layer->to(at::Device(at::kCPU));
  expect_same(before, state(*layer));
  EXPECT_TRUE(run_eval(*layer, batch()).equal(y));
  EXPECT_TRUE(run_training(*layer, batch()).equal(y));
}

TEST_P(EveryLayer, GradientsReachEverythingThatLearns) {
  const auto layer = make();
  const at::Tensor x = batch().requires_grad_();
  const at::Tensor y = layer->forward(x);
  y.mul(numbers(y.sizes(), 9)).sum().backward();
  for (const at::Tensor& t : {x, layer->bias_a, layer->scale_a, layer->weight}) {
    ASSERT_TRUE(t.grad().defined()) << t.sizes();
    EXPECT_EQ(t.grad().sizes(), t.sizes());
    EXPECT_EQ(t.grad().scalar_type(), t.scalar_type());
    EXPECT_TRUE(informative(t.grad().to(at::kFloat))) << t.sizes();
  }
  EXPECT_FALSE(layer->scale_w.requires_grad());
  // xs = x + bias_a: the gradient of the bias is that of x over all other axes.
  std::vector<std::int64_t> others;
  for (std::int64_t axis = 0; axis < x.dim(); ++axis)
    if (axis != GetParam().axis) others.push_back(axis);
  EXPECT_TRUE(x.grad().sum(others).allclose(layer->bias_a.grad(), 1e-4, 1e-5));
}

TEST_P(EveryLayer, EvaluationTrainsNoWeight) {
  const auto layer = make();
  run_training(*layer, batch());
  layer->eval();
  layer->forward(batch()).sum().backward();
  EXPECT_FALSE(layer->weight.grad().defined());
}

TEST_P(EveryLayer, ABatchOfZerosIsZeroAndSetsNoScale) {
  const auto layer = make();
  for (const bool training : {true, false}) {
    layer->train(training);
    const at::Tensor y = run(*layer, at::zeros_like(batch()));
    EXPECT_TRUE(y.eq(0).all().item<bool>());
    EXPECT_EQ(scale(*layer), 0);
  }
  EXPECT_TRUE(informative(run_training(*layer, batch())));
  EXPECT_GT(scale(*layer), 0);
}

TEST_P(EveryLayer, AnEmptyBatchIsEmptyAndSetsNoScale) {
  const auto layer = make();
  const at::Tensor x = batch(), none = x.slice(0, 0, 0);
  for (const bool training : {true, false}) {
    layer->train(training);
    EXPECT_EQ(run(*layer, none).size(0), 0);
    EXPECT_EQ(scale(*layer), 0);
  }
  const at::Tensor y = run_training(*layer, x);
  EXPECT_EQ(run_eval(*layer, none).sizes().slice(1), y.sizes().slice(1));
}

TEST_P(EveryLayer, AWrongFeatureCountIsRefused) {
  for (const bool training : {true, false}) {
    const auto layer = make();
    layer->train(training);
    std::vector<std::int64_t> shape = GetParam().x;
    std::int64_t& features = shape[static_cast<std::size_t>(GetParam().axis)];
    const std::string right = std::to_string(features);
    features += 11;
    const std::string sentence = refusal([&] { layer->forward(numbers(shape, 1)); });
    EXPECT_NE(sentence.find(std::to_string(features)), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(right), std::string::npos) << sentence;
    EXPECT_EQ(sentence.find('\n'), std::string::npos) << sentence;
    EXPECT_EQ(scale(*layer), 0) << "a refused batch leaves no scale behind";
  }
}

TEST_P(EveryLayer, AWrongRankIsRefusedAndLeavesNoScale) {
  const auto layer = make();
  const std::int64_t features = layer->bias_a.size(0);
  std::vector<std::vector<std::int64_t>> shapes{{}};
  if (layer->weight_shape().size() == 4) shapes = {{features}, {2, features}, {2, features, 9}, {2, features, 9, 9, 9}};
  for (const bool training : {true, false})
    for (const auto& shape : shapes) {
      layer->train(training);
      const std::string sentence = refusal([&] { layer->forward(numbers(shape, 1)); });
      EXPECT_NE(sentence.find("x: expected "), std::string::npos) << sentence;
      EXPECT_EQ(scale(*layer), 0) << at::IntArrayRef(shape);
      EXPECT_EQ(layer->guarded_scale(), 0) << at::IntArrayRef(shape);
    }
}

TEST_P(EveryLayer, ABatchWithNanIsRefusedAndLeavesNoScale) {
  const auto layer = make();
  at::Tensor x = batch();
  x.view(-1)[3].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(refusal([&] { layer->forward(x); }), "");
  EXPECT_EQ(scale(*layer), 0);
}

TEST_P(EveryLayer, AllZeroWeightsGiveZeros) {
  const auto layer = make();
  {
    const at::NoGradGuard no_grad;
    layer->weight.zero_();
  }
  EXPECT_TRUE(run_training(*layer, batch()).eq(0).all().item<bool>());
  EXPECT_TRUE(run_eval(*layer, batch()).eq(0).all().item<bool>());
  layer->generate_quantized_weight(true);
  EXPECT_TRUE(run_eval(*layer, batch()).eq(0).all().item<bool>());
}

TEST_P(EveryLayer, WeightsStartKaimingUniformAndPackDensely) {
  const auto layer = make();
  const double bound = 1 / std::sqrt(static_cast<double>(layer->weight[0].numel()));
  EXPECT_LE(layer->weight.abs().max().item<double>(), bound);
  EXPECT_GT(layer->weight.abs().max().item<double>(), 0.8 * bound);
  EXPECT_LT(layer->weight.min().item<double>(), -0.7 * bound);
  EXPECT_TRUE(layer->bias_a.eq(0).all().item<bool>());
  const std::int64_t rows = layer->weight.size(0), k = layer->weight[0].numel();
  EXPECT_EQ(layer->weight_count(), rows * k);
  layer->generate_quantized_weight(true);
  EXPECT_EQ(layer->weight_count(), rows * k);
  EXPECT_EQ(layer->qweight.nbytes(), static_cast<std::size_t>(rows * ((k * layer->weight_bits() + 7) / 8)));
}

}  // namespace
}  // namespace bie::layers::test
