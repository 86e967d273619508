// How a layer's weight is replaced and packed, and that evaluation follows it.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/sgd.h>

#include <cstring>
#include <vector>

#include "bie/layers/nbit_layer.h"
#include "bie/optim/parameters.h"
#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

/// Another packed weight: the output channels in reverse.
at::Tensor reversed(const at::Tensor& qweight) { return qweight.flip(0).contiguous(); }

TEST_P(EveryLayer, WeightDataAreReplacedAndPrepared) {
  for (const char* before : {"fresh", "trained", "packed"}) {
    SCOPED_TRACE(before);
    const auto layer = make(), other = make();
    const at::Tensor data = other->weight.detach().clone(), given = data.clone();
    if (before != std::string("fresh")) run_training(*layer, batch());
    if (before == std::string("packed")) layer->generate_quantized_weight(true);
    const at::Tensor scale_a = layer->scale_a.detach().clone();
    layer->set_weight_data(given);
    other->prepare_params();
    EXPECT_STREQ(layer->weight_form(), GetParam().latent ? "float" : "int8");
    EXPECT_TRUE(layer->weight.equal(other->weight));
    EXPECT_TRUE(layer->scale_w.equal(other->scale_w) || layer->weight_bits() == 8 || layer->weight_bits() == 1);
    EXPECT_FALSE(layer->qweight.defined());
    EXPECT_TRUE(layer->scale_a.equal(scale_a));
    assign(other->scale_a, scale_a);
    EXPECT_TRUE(run_training(*layer, batch()).equal(run_training(*other, batch())));
    EXPECT_TRUE(run_eval(*layer, batch()).equal(run_eval(*other, batch())));
    EXPECT_TRUE(given.equal(data));
    EXPECT_FALSE(layer->weight.is_alias_of(given)) << "the layer has its own";
  }
}

TEST_P(EveryLayer, AnAddressThatComesBackIsAnotherWeight) {
  const auto layer = make();
  run_training(*layer, batch());
  layer->generate_quantized_weight(true);
  const at::Tensor first = layer->qweight.detach().clone(), second = reversed(first);
  std::vector<std::uint8_t> memory(first.nbytes());
  const auto on_one_address = [&](const at::Tensor& value) {
    std::memcpy(memory.data(), value.const_data_ptr(), memory.size());
    return at::from_blob(memory.data(), value.sizes(), value.options());
  };
  layer->set_quantized_weight_data(on_one_address(first));
  const at::Tensor y = run_eval(*layer, batch());
  layer->set_quantized_weight_data(on_one_address(second));
  const at::Tensor after = run_eval(*layer, batch());
  const auto fresh = make();
  fresh->check_state(*std::make_unique<StateDict>(layer->state(true)), "")();
  EXPECT_FALSE(after.equal(y));
  EXPECT_TRUE(after.equal(run_eval(*fresh, batch())));
}

TEST_P(EveryLayer, InferenceModeLeavesALayerThatTrains) {
  const at::Tensor x = batch();
  std::shared_ptr<IntegerLayer> made, prepared, loaded, converted, packed;
  const auto trained = make();
  run_training(*trained, x);
  StateDict entries = trained->state(false);
  prepared = make(), loaded = make(), converted = make(), packed = make();
  {
    const c10::InferenceMode inference;
    made = make();
    for (const auto& layer : {made, prepared}) layer->prepare_params();
    run_training(*made, x);
    loaded->check_state(entries, "")();
    converted->to(at::kBFloat16);
    converted->to(at::kFloat);
    packed->set_weight_data(numbers(packed->weight_shape(), 3));
  }
  for (const auto& layer : {made, prepared, loaded, converted, packed}) {
    layer->train();
    layer->forward(x).square().sum().backward();
    EXPECT_TRUE(layer->weight.grad().defined());
    EXPECT_FALSE(layer->weight.is_inference());
    EXPECT_TRUE(layer->scale_a.grad().defined());
  }
}

TEST_P(EveryLayer, AChangeInInferenceModeIsNoticed) {
  const auto layer = make();
  run_training(*layer, batch());
  const c10::InferenceMode inference;
  const at::Tensor before = run_eval(*layer, batch());
  change(layer->weight);
  const at::Tensor after = run(*layer, batch());
  EXPECT_FALSE(after.equal(before));
  layer->generate_quantized_weight(true);
  EXPECT_TRUE(run(*layer, batch()).equal(after));
  // A tensor of inference mode counts no versions: what is derived from it is never kept.
  layer->qweight = layer->qweight.clone();
  EXPECT_TRUE(run(*layer, batch()).equal(after));
  layer->qweight.copy_(reversed(layer->qweight));
  EXPECT_FALSE(run(*layer, batch()).equal(after));
}

TEST_P(EveryLayer, WeightDataThatDoNotFitAreRefused) {
  const auto layer = make();
  run_training(*layer, batch());
  const auto before = state(*layer);
  const at::IntArrayRef shape(layer->weight_shape());
  for (const at::Tensor& bad :
       {at::ones(shape, at::kChar), at::ones(shape, at::kLong), at::ones(shape.slice(1)), at::ones({3, 3, 3})}) {
    const std::string sentence = refusal([&] { layer->set_weight_data(bad); });
    EXPECT_NE(sentence.find(c10::str(bad.sizes())), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(c10::str(shape)), std::string::npos) << sentence;
    EXPECT_NE(sentence.find(c10::toString(bad.scalar_type())), std::string::npos) << sentence;
    expect_same(before, state(*layer));
  }
}

TEST_P(EveryLayer, APackedWeightIsTakenInPlaceOfAnother) {
  const auto from = make(), to = make();
  run_training(*from, batch());
  run_training(*to, batch());
  const at::Tensor y = run_eval(*from, batch());
  from->generate_quantized_weight(true);
  EXPECT_FALSE(run_eval(*to, batch()).equal(y)) << "the two start with other weights";
  to->set_quantized_weight_data(from->qweight, from->scale_w);
  EXPECT_FALSE(to->weight.defined());
  EXPECT_STREQ(to->weight_form(), "packed");
  EXPECT_FALSE(to->named_parameters().contains("weight"));
  EXPECT_TRUE(run_eval(*to, batch()).equal(y));
  // Without a scale, the one that is there stays.
  assign(to->scale_w, 3);
  to->set_quantized_weight_data(from->qweight);
  EXPECT_EQ(to->scale_w.item<float>(), 3);
}

TEST_P(EveryLayer, APackedWeightThatDoesNotFitIsRefused) {
  const auto layer = make(), other = make();
  run_training(*layer, batch());
  other->generate_quantized_weight(true);
  const at::Tensor good = other->qweight, one = at::ones({});
  const at::Tensor y = run_eval(*layer, batch());
  const auto before = state(*layer);
  const at::Tensor narrow = good.slice(0, 1);
  const std::string shapes = refusal([&] { layer->set_quantized_weight_data(narrow, one); });
  EXPECT_NE(shapes.find(c10::str(narrow.sizes())), std::string::npos) << shapes;
  EXPECT_NE(shapes.find(c10::str(good.sizes())), std::string::npos) << shapes;
  const std::string dtypes = refusal([&] { layer->set_quantized_weight_data(good.to(at::kFloat), one); });
  EXPECT_NE(dtypes.find("Float"), std::string::npos) << dtypes;
  EXPECT_NE(dtypes.find(c10::toString(good.scalar_type())), std::string::npos) << dtypes;
  EXPECT_NE(refusal([&] { layer->set_quantized_weight_data(good, at::ones({3})); }), "");
  expect_same(before, state(*layer));
  EXPECT_TRUE(run_eval(*layer, batch()).equal(y));
}

TEST_P(EveryLayer, PackingKeepsOrDropsTheTrainingWeight) {
  const auto layer = make();
  run_training(*layer, batch());
  const at::Tensor y = run_eval(*layer, batch()), weight = layer->weight.detach().clone();
  layer->generate_quantized_weight(false);
  EXPECT_TRUE(layer->weight.equal(weight));
  const at::Tensor qweight = layer->qweight, scale_w = layer->scale_w.clone();
  layer->generate_quantized_weight(false);
  EXPECT_TRUE(layer->qweight.equal(qweight));
  const auto other = make();
  assign(other->scale_a, layer->scale_a.detach());
  other->set_quantized_weight_data(qweight.clone(), scale_w);
  EXPECT_TRUE(run_eval(*other, batch()).equal(y));
  layer->generate_quantized_weight(true);
  EXPECT_FALSE(layer->weight.defined());
  EXPECT_TRUE(layer->qweight.equal(qweight));
  EXPECT_TRUE(layer->scale_w.equal(scale_w));
}

// qweight and scale_w belong together, also where qweight is packed anew.
TEST_P(EveryLayer, APackedWeightThatFollowsBringsItsScale) {
  const auto layer = make(), other = make();
  run_training(*layer, batch());
  layer->generate_quantized_weight();
  layer->train();
  change(layer->weight);
  const at::Tensor y = run_eval(*layer, batch());
  assign(other->scale_a, layer->scale_a.detach());
  other->set_quantized_weight_data(layer->qweight, layer->scale_w);
  EXPECT_TRUE(run_eval(*other, batch()).equal(y));
}

TEST_P(EveryLayer, OptWeightFollowsTheWeightThroughTheModes) {
  const auto layer = make();
  run_training(*layer, batch());
  EXPECT_TRUE(layer->opt_weight().is_same(layer->weight));
  std::vector<at::Tensor> packed;
  for (int round = 0; round < 3; ++round) {
    layer->eval();
    packed.push_back(layer->opt_weight().clone());
    EXPECT_TRUE(layer->opt_weight().equal(layer->state(true).at("qweight")));
    EXPECT_FALSE(layer->qweight.defined());
    EXPECT_FALSE(layer->named_parameters().contains("qweight"));
    layer->train();
    EXPECT_TRUE(layer->opt_weight().is_same(layer->weight));
    if (round == 0) change(layer->weight);
  }
  EXPECT_FALSE(packed[1].equal(packed[0]));
  EXPECT_TRUE(packed[2].equal(packed[1]));
}

TEST_P(EveryLayer, AnOptimizerStepBetweenTwoEvaluationsIsSeen) {
  const auto layer = make();
  run_training(*layer, batch());
  const at::Tensor before = run_eval(*layer, batch());
  layer->train();
  for (const at::Tensor& other : {layer->scale_a, layer->bias_a}) other.set_requires_grad(false);
  optim::DiodeMix mix({{optim::parameters(*layer), {.lr = 0.1, .beta1 = 0.1, .beta2 = 0.2}}});
  for (int step = 0; step < 3; ++step) {
    mix.zero_grad();
    const at::Tensor y = layer->forward(batch());
    y.mul(numbers(y.sizes(), 2)).sum().backward();
    mix.step();
  }
  const at::Tensor after = run_eval(*layer, batch());
  EXPECT_FALSE(after.equal(before));
  EXPECT_TRUE(after.equal(run_training(*layer, batch())));
}

TEST_P(EveryLayer, ARenewedScaleIsThatOfThePresentWeight) {
  const auto layer = make(), renewed = make();
  run_training(*layer, batch());
  const bool follows = layer->weight_bits() == 4 && GetParam().latent;
  if (at::isFloatingType(layer->weight.scalar_type())) {
    const at::NoGradGuard no_grad;
    layer->weight.mul_(3);
  }
  const at::Tensor before = layer->scale_w.clone(), weight = layer->weight.detach().clone();
  renew_weight_scales(*layer);
  EXPECT_TRUE(layer->weight.equal(weight));
  EXPECT_EQ(layer->scale_w.equal(before), !follows);
  if (!follows) return;
  renewed->set_weight_data(weight);
  assign(renewed->scale_a, layer->scale_a.detach());
  EXPECT_TRUE(layer->scale_w.equal(renewed->scale_w));
  EXPECT_TRUE(run_training(*layer, batch()).equal(run_training(*renewed, batch())));
  EXPECT_TRUE(run_eval(*layer, batch()).equal(run_eval(*renewed, batch())));
}

TEST(FloatWeights, AStepOfTorchIsSeenToo) {
  for (const LayerCase& param : every_layer()) {
    if (!param.latent) continue;
    SCOPED_TRACE(param.name);
    const auto layer = param.make(false);
    const at::Tensor x = numbers(param.x, 1);
    run_training(*layer, x);
    torch::optim::SGD sgd({layer->weight}, 0.1);
    for (const bool stays : {false, true}) {
      const at::Tensor before = run_eval(*layer, x);
      if (!stays) layer->train();
      layer->weight.mutable_grad() = numbers(layer->weight.sizes(), 5);
      sgd.step();
      if (stays)
        layer->repack();  // SGD writes through data(), which leaves no trace
      else
        layer->eval();
      EXPECT_FALSE(run(*layer, x).equal(before));
    }
  }
}

TEST_P(EveryLayer, AWeightThatIsNotTrainedHasNoGradient) {
  const auto layer = make();
  layer->set_weight_trainable(false);
  EXPECT_FALSE(layer->weight_trainable());
  layer->forward(batch()).sum().backward();
  EXPECT_FALSE(layer->weight.grad().defined());
  EXPECT_TRUE(layer->scale_a.grad().defined());
  for (const optim::Param& param : optim::parameters(*layer)) EXPECT_NE(param.name, "weight");
  layer->set_weight_trainable(true);
  layer->forward(batch()).sum().backward();
  EXPECT_TRUE(layer->weight.grad().defined());
  EXPECT_EQ(optim::parameters(*layer).size(), 3u);
}

TEST_P(EveryLayer, ALayerRunsAgainAfterItsPackedFormWasReplaced) {
  const auto layer = make();
  run_training(*layer, batch());
  layer->generate_quantized_weight(true);
  run_eval(*layer, batch());
  const at::Tensor zero = at::zeros_like(layer->qweight);
  layer->set_quantized_weight_data(zero, at::ones({}));
  const at::Tensor y = run(*layer, batch());
  const auto other = make();
  assign(other->scale_a, layer->scale_a.detach());
  other->set_quantized_weight_data(zero, at::ones({}));
  EXPECT_TRUE(run_eval(*other, batch()).equal(y));
}

}  // namespace
}  // namespace bie::layers::test
