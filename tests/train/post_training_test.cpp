// Post-training quantisation against formulas of its own.
#include "bie/train/post_training.h"

#include <ATen/ATen.h>

#include <cmath>

#include "bie/layers/nbit_layer.h"
#include "bie/models/model_file.h"
#include "bie/train/evaluation.h"
#include "tests/support/scratch.h"
#include "tests/train/small_runs.h"

namespace bie::train::test {
namespace {

using bie::test::refusal;

double error_of(const at::Tensor& x, double step, int bits) {
  const double most = bits == 8 ? 127 : 7;
  return at::round(x / step).clamp(-most - 1, most).mul(step).sub(x).square().mean().item<double>();
}

TEST(StepSize, TheBestOfAGrid) {
  at::manual_seed(3);
  for (const int bits : {8, 4})
    for (const at::Tensor& x :
         {at::randn({5000}), at::randn({5000}).relu(), at::rand({400}), at::randn({300}).pow(3)}) {
      const double step = step_size(x, bits, StepRule::mse, 100);
      double best = 1e30;
      for (int i = 1; i <= 1000; ++i)
        best = std::min(best, error_of(x, x.abs().max().item<double>() * i / 1000 / (bits == 8 ? 127 : 7), bits));
      EXPECT_LT(error_of(x, step, bits), best * 1.1 + 1e-12) << bits;
    }
}

TEST(StepSize, APercentileIsNotClipped) {
  const at::Tensor x = at::arange(1, 1002).to(at::kFloat).neg();
  EXPECT_NEAR(step_size(x, 8, StepRule::percentile, 100), 1001.0 / 127, 1e-4);
  EXPECT_NEAR(step_size(x, 4, StepRule::percentile, 90), 901.0 / 7, 1e-4);
  EXPECT_GT(step_size(at::zeros({5}), 8, StepRule::mse, 100), 0);
  EXPECT_GT(step_size(at::zeros({5}), 4, StepRule::percentile, 50), 0);
  for (const double bad : {0.0, -1.0, 100.5, std::nan("")})
    EXPECT_NE(refusal([&] { step_size(x, 8, StepRule::percentile, bad); }).find("percentile"), std::string::npos);
}

TEST(StepSize, RowsAreTheirOwn) {
  const at::Tensor x = at::randn({3, 200}) * at::tensor({1.0f, 10.0f, 0.1f}).unsqueeze(1);
  const at::Tensor steps = step_sizes(x, 4, StepRule::mse, 100);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_FLOAT_EQ(steps[i].item<float>(), static_cast<float>(step_size(x[i], 4, StepRule::mse, 100)));
}

class PostTrainingTest : public OneThread {
 protected:
  std::shared_ptr<models::Classifier> trained(const models::ModelConfig& config) {
    const auto model = model_of(config);
    fit(*model, data_, short_run(4));
    return model;
  }
  std::shared_ptr<models::Classifier> lenet(bool norm = true) {
    data_ = separable({16, 17});
    return trained({.arch = "lenet", .image = {1, 16, 17}, .classes = 3, .hidden = 32, .norm = norm});
  }
  /// How far the logits moved, as a share of their size.
  double moved(models::Classifier& from, models::Classifier& to) {
    const at::Tensor a = logits(from, data_.test_images), b = logits(to, data_.test_images);
    return ((a - b).square().mean() / a.square().mean()).sqrt().item<double>();
  }
  data::Dataset data_ = separable();
};

TEST_F(PostTrainingTest, EightBitsAreClose) {
  const auto expect_close = [&](models::Classifier& model) {
    const PostTrained result = quantize(model, data_.train_images, {});
    EXPECT_LT(moved(model, *result.model), 0.03) << model.config().arch;
    ASSERT_EQ(result.layers.size(), result.model->quant_layers().size());
    for (const LayerError& layer : result.layers) {
      EXPECT_LT(layer.error, 0.03) << layer.name;
      EXPECT_GT(layer.error, 0) << layer.name;
    }
  };
  for (const bool norm : {true, false}) {
    data_ = separable();
    expect_close(*trained({"mlp", 32, {1, 4, 5}, 3, 32, 2, norm}));
    expect_close(*lenet(norm));
  }
}

TEST_F(PostTrainingTest, FoldingLeavesNoNorm) {
  const auto model = lenet();
  PostTraining o;
  o.fold = true;
  const PostTrained result = quantize(*model, data_.train_images, o);
  EXPECT_FALSE(result.model->config().norm);
  EXPECT_FALSE(result.model->named_buffers().contains("conv1.norm.running_mean"));
  EXPECT_LT(moved(*model, *result.model), 0.03);
}

TEST_F(PostTrainingTest, ChannelsOfTheirOwnKeepWhatOneScaleLoses) {
  const auto model = lenet();
  {
    const at::NoGradGuard no_grad;  // one channel a hundred times as large as the others, and its norm to match
    auto parameters = model->named_parameters();
    auto buffers = model->named_buffers();
    parameters["conv2.product.weight"][0].mul_(100);
    buffers["conv2.norm.running_mean"][0].mul_(100);
    buffers["conv2.norm.running_var"][0].mul_(1e4);
  }
  PostTraining o;
  o.bits = 4;
  const PostTrained one = quantize(*model, data_.train_images, o);
  o.per_channel = true;
  const PostTrained many = quantize(*model, data_.train_images, o);
  EXPECT_LT(moved(*model, *many.model), 0.5 * moved(*model, *one.model));
}

// The same where there is no BatchNorm that could hold the scales: in nets without, behind a fold and in the head.
TEST_F(PostTrainingTest, ChannelsOfTheirOwnWithoutANorm) {
  for (const bool fold : {true, false}) {
    SCOPED_TRACE(fold);
    const auto model = lenet(fold);
    {
      const at::NoGradGuard no_grad;
      model->named_parameters()["conv2.product.weight"][0].mul_(100);
      model->named_parameters()["head.weight"][0].mul_(100);
    }
    PostTraining o;
    o.bits = 4;
    o.fold = fold;
    o.bits_of = {{"head", 4}};
    const PostTrained one = quantize(*model, data_.train_images, o);
    o.per_channel = true;
    const PostTrained many = quantize(*model, data_.train_images, o);
    EXPECT_TRUE(many.model->config().channel_scales);
    EXPECT_FALSE(many.model->config().norm);
    for (std::size_t i = 0; i < one.layers.size(); ++i) {
      const std::string& name = one.layers[i].name;
      if (name == "inner") continue;  // its weights are as they were
      EXPECT_LT(many.layers[i].error, one.layers[i].error) << name;
    }
    auto* head = layers::layers_of<layers::IntegerLayer>(*many.model).at("head");
    EXPECT_GT(head->channel_scale[0].item<float>(), 20 * head->channel_scale[1].item<float>());
  }
}

TEST_F(PostTrainingTest, ScalesGoIntoANormWhereThereIsOne) {
  const auto model = lenet();
  PostTraining o{.bits = 4, .per_channel = true};
  EXPECT_FALSE(quantize(*model, data_.train_images, o).model->config().channel_scales) << "all layers have one";
  o.bits_of = {{"head", 4}};
  const PostTrained result = quantize(*model, data_.train_images, o);
  EXPECT_TRUE(result.model->config().channel_scales);
  const auto layers = layers::layers_of<layers::IntegerLayer>(*result.model);
  EXPECT_TRUE(layers.at("head")->channel_scale.defined());
  EXPECT_FALSE(layers.at("conv2.product")->channel_scale.defined());
}

TEST_F(PostTrainingTest, TheFileIsTheModel) {
  const bie::test::Scratch scratch;
  for (const bool per_channel : {false, true})
    for (const int bits : {8, 4}) {
      const auto model = lenet();
      PostTraining o;
      o.bits = bits;
      o.per_channel = per_channel;
      o.bits_of = {{"head", 8}, {"conv1", 8}, {"conv2", 4}};
      const PostTrained result = quantize(*model, data_.train_images, o);
      EXPECT_EQ(result.model->quant_layers().size(), 4u);
      models::save_model(*result.model, scratch.path("m"));
      const auto loaded = models::load_classifier(scratch.path("m"));
      EXPECT_TRUE(logits(*loaded, data_.test_images).equal(logits(*result.model, data_.test_images)));
      EXPECT_EQ(loaded->config().bits_of, o.bits_of);
    }
}

TEST_F(PostTrainingTest, TheFloatNetIsLeftAlone) {
  const auto model = lenet();
  const at::Tensor before = logits(*model, data_.test_images);
  PostTraining o;
  o.fold = true;
  quantize(*model, data_.train_images, o);
  EXPECT_TRUE(logits(*model, data_.test_images).equal(before));
}

TEST_F(PostTrainingTest, SaturatedSharesAreCounted) {
  const auto model = lenet();
  const PostTrained result = quantize(*model, data_.train_images, {});
  auto* conv = layers::layers_of<layers::IntegerLayer>(*result.model).at("conv2.product");
  at::Tensor seen;
  result.model->set_probe([&](const std::string& name, const at::Tensor& x) {
    if (name == "conv2") seen = x.clone();
  });
  logits(*result.model, data_.test_images);
  result.model->set_probe({});
  {
    const at::NoGradGuard no_grad;
    conv->scale_a.fill_(seen.abs().max().item<float>() / 200);
  }
  const double wanted = (seen / conv->scale_a)
                            .gt(127.5)
                            .logical_or((seen / conv->scale_a).lt(-128.5))
                            .to(at::kDouble)
                            .mean()
                            .item<double>();
  EXPECT_GT(wanted, 0);
  const auto shares = saturated_shares(*result.model, data_.test_images);
  EXPECT_DOUBLE_EQ(shares.at("conv2"), wanted);
  EXPECT_EQ(shares.count("head"), 0u);
}

TEST_F(PostTrainingTest, WhatCannotBeIsRefused) {
  const auto model = lenet();
  const auto expect = [&](const PostTraining& o, const std::string& part, models::Classifier& from) {
    const std::string sentence = refusal([&] { quantize(from, data_.train_images, o); });
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  };
  for (const int bits : {1, 32, 3})
    expect({.bits = bits}, "bits: expected 8 or 4, as 1 bit has to be trained, got " + std::to_string(bits), *model);
  expect({.bits_of = {{"conv2", 1}}}, "'conv2' is to have 1 bit", *model);
  expect({.bits_of = {{"conv9", 8}}}, "there is no layer 'conv9'", *model);
  expect({.bits_of = {{"conv2", 32}, {"inner", 32}}}, "no layer is to be quantised", *model);
  const auto bare = lenet(false);
  expect({.fold = true}, "no BatchNorm", *bare);
  expect({}, "expected a float model, got a quantised one", *quantize(*model, data_.train_images, {}).model);
  EXPECT_NE(refusal([&] { quantize(*model, data_.train_images.slice(0, 0, 0), {}); }), "");
}

}  // namespace
}  // namespace bie::train::test
