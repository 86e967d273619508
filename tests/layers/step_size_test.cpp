// scale_a: what the first batch sets it to, and the guard that keeps it positive in training.
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "tests/layers/every_layer.h"
#include "tests/support/scratch.h"

namespace bie::layers::test {
namespace {

using bie::test::refusal;

float mean_scale(const at::Tensor& x, double c) {
  return static_cast<float>(c * x.to(at::kDouble).abs().mean().item<double>());
}

TEST_P(EveryLayer, TheFirstBatchSetsTheScaleOnce) {
  for (const bool training : {true, false}) {
    const auto layer = make();
    layer->train(training);
    assign(layer->bias_a, 3);  // the scale is of x, not of x + bias_a
    EXPECT_EQ(scale(*layer), 0);
    run(*layer, batch());
    EXPECT_FLOAT_EQ(scale(*layer), mean_scale(batch(), GetParam().c));
    const float first = scale(*layer);
    run(*layer, batch(2).mul(7));
    run_eval(*layer, batch(3).mul(0.01));
    run_training(*layer, batch(3).mul(0.01));
    EXPECT_EQ(scale(*layer), first);
  }
}

TEST_P(EveryLayer, CompatTakesTheEightBitConstantAtFourBits) {
  const auto layer = make();
  layer->set_compat(Compat::bie_0_2_6);
  run_training(*layer, batch());
  EXPECT_FLOAT_EQ(scale(*layer), mean_scale(batch(), layer->weight_bits() == 4 ? 2 / 11.269 : GetParam().c));
}

TEST(BinaryLinear, WithoutSymmetryTheFirstScaleIsTwiceAsLarge) {
  const at::Tensor x = numbers({9, 33}, 1);
  for (const bool symmetric : {true, false}) {
    BinaryLinearImpl layer(BinaryLinearOptions{.in_features = 33, .out_features = 5, .symmetric = symmetric});
    run_training(layer, x);
    EXPECT_FLOAT_EQ(scale(layer), mean_scale(x, symmetric ? 2 : 4));
  }
}

// Expected scale_a after an optimizer moved it to `value`.
float guarded(float value, float floor, float first) { return std::max(value, floor * first); }

TEST_P(EveryLayer, TheGuardKeepsTheStepSizePositiveInTraining) {
  const float usual = StepSizeGuard{}.floor;
  EXPECT_GT(usual, 0);
  for (const float floor : {usual, 0.25f}) {
    const auto layer = make();
    layer->set_step_size_guard({floor});
    run_training(*layer, batch());
    const float first = scale(*layer);
    EXPECT_EQ(layer->guarded_scale(), first);
    for (const float factor : {-1.0f, 0.0f, -1e-7f, 0.001f, 0.9f * floor, 1.1f * floor, 3.0f}) {
      const float wanted = guarded(factor * first, floor, first);
      assign(layer->scale_a, factor * first);
      const at::Tensor y = run(*layer, batch());
      EXPECT_EQ(scale(*layer), wanted) << factor;
      EXPECT_TRUE(informative(y)) << factor;
      // The last step of a training run has no forward pass after it.
      assign(layer->scale_a, factor * first);
      layer->eval();
      EXPECT_EQ(scale(*layer), wanted) << factor;
      EXPECT_TRUE(run(*layer, batch()).equal(y)) << factor;
      layer->train();
    }
    EXPECT_EQ(layer->guarded_scale(), first) << "the first batch's, for ever";
  }
}

TEST_P(EveryLayer, AStateComputesWhatTheLiveLayerComputes) {
  for (const bool packed : {false, true})
    for (const float factor : {-1.0f, 0.0f, 0.001f, 3.0f}) {
      const auto live = make(), loaded = make();
      run_training(*live, batch());
      assign(live->scale_a, factor * scale(*live));  // as an optimizer's step leaves it
      StateDict entries = live->state(packed);
      EXPECT_EQ(scale(*live), factor * live->guarded_scale()) << "the layer is not changed";
      loaded->check_state(entries, "")();
      EXPECT_TRUE(run_eval(*loaded, batch(2)).equal(run_eval(*live, batch(2)))) << factor;
    }
}

TEST_P(EveryLayer, EvaluationGuardsNothing) {
  const auto layer = make();
  run_training(*layer, batch());
  layer->eval();
  assign(layer->scale_a, -1);
  run(*layer, batch());
  layer->eval();
  EXPECT_EQ(scale(*layer), -1);
}

TEST_P(EveryLayer, AFloorOfZeroIsNoGuard) {
  const auto layer = make();
  layer->set_step_size_guard({0});
  run_training(*layer, batch());
  assign(layer->scale_a, -0.5);
  run_training(*layer, batch());
  layer->eval();
  EXPECT_EQ(scale(*layer), -0.5);
}

TEST_P(EveryLayer, ALoadedScaleHasNoGuard) {
  for (const float loaded : {1e-6f, 0.5f, -0.5f})
    for (const bool by_state : {false, true}) {
      const auto layer = make();
      if (by_state) {
        run_training(*layer, batch());  // what the guard knew is forgotten
        StateDict entries = layer->state(false);
        entries["scale_a"] = at::full({}, loaded);
        layer->check_state(entries, "")();
      } else {
        assign(layer->scale_a, loaded);
      }
      run_training(*layer, batch());
      run_training(*layer, batch(2));
      EXPECT_EQ(scale(*layer), loaded);
      EXPECT_EQ(layer->guarded_scale(), 0);
      assign(layer->scale_a, loaded * 1e-3f);
      run_training(*layer, batch());
      layer->eval();
      EXPECT_EQ(scale(*layer), loaded * 1e-3f) << "however far training takes it";
    }
}

TEST_P(EveryLayer, ARestoredGuardGoesOn) {
  const auto layer = make();
  assign(layer->scale_a, 0.5);
  layer->set_guarded_scale(0.4f);
  run_training(*layer, batch());
  EXPECT_EQ(scale(*layer), 0.5f);
  EXPECT_EQ(layer->guarded_scale(), 0.4f) << "this batch is not the first";
  assign(layer->scale_a, -1);
  run_training(*layer, batch());
  EXPECT_EQ(scale(*layer), StepSizeGuard{}.floor * 0.4f);
}

TEST(StepSizeGuard, AModuleSetsThatOfItsLayers) {
  torch::nn::Module module;
  const auto a = module.register_module("a", std::make_shared<Q4LinearImpl>(7, 5));
  const auto b = a->register_module("b", std::make_shared<BinaryLinearImpl>(7, 5));
  set_step_size_guard(module, {0.5f});
  EXPECT_EQ(a->step_size_guard().floor, 0.5f);
  EXPECT_EQ(b->step_size_guard().floor, 0.5f);
}

TEST(StepSizeGuard, AFloorThatIsNoShareIsRefused) {
  torch::nn::Module module, empty;
  const auto layer = module.register_module("a", std::make_shared<Q4LinearImpl>(7, 5));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float floor : {-0.01f, 1.01f, 1e30f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const auto& set : std::vector<std::function<void()>>{[&] { layer->set_step_size_guard({floor}); },
                                                              [&] { set_step_size_guard(module, {floor}); },
                                                              [&] { set_step_size_guard(empty, {floor}); }})
      EXPECT_NE(refusal(set).find("expected a number in [0, 1], got"), std::string::npos) << floor;
    EXPECT_EQ(layer->step_size_guard().floor, StepSizeGuard{}.floor);
  }
  for (const float floor : {0.0f, 1.0f}) {
    set_step_size_guard(module, {floor});
    EXPECT_EQ(layer->step_size_guard().floor, floor);
  }
}

TEST_P(EveryLayer, ABatchOfZerosSetsNoGuard) {
  const auto layer = make();
  run_training(*layer, at::zeros(GetParam().x));
  EXPECT_EQ(layer->guarded_scale(), 0);
  run_training(*layer, batch());
  EXPECT_FLOAT_EQ(layer->guarded_scale(), mean_scale(batch(), GetParam().c));
}

TEST_P(EveryLayer, OneGraphHoldsTwoCalls) {
  const auto layer = make();
  run_training(*layer, batch());
  layer->zero_grad();
  (layer->forward(batch()).sum() + layer->forward(batch().neg()).sum()).backward();
  EXPECT_TRUE(layer->scale_a.grad().defined());
}

}  // namespace
}  // namespace bie::layers::test
