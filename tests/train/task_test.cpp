// Tasks of the training loop: classification, and regression as the second.
#include "bie/train/task.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "bie/train/evaluation.h"
#include "tests/support/scratch.h"
#include "tests/train/small_runs.h"

namespace bie::train::test {
namespace {

using bie::test::refusal;

/// Two bent functions of five numbers, 400 samples and 100 to test with.
data::Dataset curves(std::uint64_t seed) {
  at::manual_seed(seed);
  const at::Tensor x = at::randn({500, 1, 1, 5}), flat = x.flatten(1);
  const at::Tensor y = at::stack(
      {flat.select(1, 0).add(flat.select(1, 1)).tanh(), flat.select(1, 2).mul(2).sub(flat.select(1, 3)).relu()}, 1);
  data::Dataset data;
  data.train_images = x.slice(0, 0, 400);
  data.train_labels = y.slice(0, 0, 400);
  data.test_images = x.slice(0, 400);
  data.test_labels = y.slice(0, 400);
  data.classes = 2;
  data.name = "curves";
  return data;
}

models::ModelConfig net(int bits) {
  models::ModelConfig config = small_config(bits);
  config.image = {1, 1, 5};
  config.classes = 2;
  return config;
}

using TaskTest = OneThread;

TEST_F(TaskTest, ARegressionExplainsWhatItsTargetsAreMadeOf) {
  // Worst of 20 seeds under MKL_ENABLE_INSTRUCTIONS=AVX2 and ATEN_CPU_CAPABILITY=default: 0.97, 0.97 and 0.95 after the
  // training, at most 0.03 before it.
  for (const int bits : {32, 8, 4})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const data::Dataset data = curves(seed);
      const Regression task(data);
      const auto model = model_of(net(bits), seed);
      const double before = mean_score(*model, task, data.test_images, data.test_labels);
      const TrainResult result = fit(*model, data, short_run(20), {}, task);
      EXPECT_LT(before, 0.2) << bits << " bits, seed " << seed;
      EXPECT_GT(result.test_score, 0.85) << bits << " bits, seed " << seed;
      EXPECT_EQ(result.test_score, mean_score(*model, task, data.test_images, data.test_labels));
      EXPECT_TRUE(result.test_outputs.equal(logits(*model, data.test_images)));
    }
}

TEST(Tasks, TheScoreOfARegressionIsR2) {
  data::Dataset data = curves(3);
  const Regression task(data);
  const at::Tensor targets = data.test_labels, outputs = targets + at::randn(targets.sizes()).mul(0.3);
  double error = 0, all = 0;
  for (std::int64_t k = 0; k < 2; ++k) {
    const double mean = targets.select(1, k).mean().item<double>();
    for (std::int64_t i = 0; i < 100; ++i) {
      const double t = targets[i][k].item<double>();
      error += std::pow(outputs[i][k].item<double>() - t, 2);
      all += std::pow(t - mean, 2);
    }
  }
  EXPECT_NEAR(task.scores(outputs, targets).mean().item<double>(), 1 - error / all, 1e-6);
  EXPECT_NEAR(task.loss(outputs, targets).item<double>(), error / 200, 1e-6);
  EXPECT_EQ(task.metric(), "R2");
}

TEST(Tasks, TheScoreOfAClassificationIsWhetherTheLargestLogitIsTheLabels) {
  const at::Tensor logits = at::tensor({0.0, 2.0, 1.0, 5.0, -1.0, 0.0}, at::kFloat).view({2, 3});
  const at::Tensor scores = classification().scores(logits, at::tensor({1, 2}, at::kLong));
  EXPECT_EQ(scores[0].item<double>(), 1);
  EXPECT_EQ(scores[1].item<double>(), 0);
}

TEST(Tasks, TargetsOfAnotherTaskAreRefused) {
  const data::Dataset numbers = curves(1), labels = separable();
  const auto model = model_of(net(8));
  EXPECT_NE(refusal([&] { fit(*model, numbers, short_run(1)); }).find("the labels: expected int64 [n], got"),
            std::string::npos);
  EXPECT_NE(refusal([&] { Regression{labels}; }).find("the targets: expected float32 [n, k], got"), std::string::npos);
  const Regression task(numbers);
  models::ModelConfig three = net(8);
  three.classes = 3;
  EXPECT_NE(refusal([&] { fit(*model_of(three), numbers, short_run(1), {}, task); }).find("the model has 3 outputs"),
            std::string::npos);
  data::Dataset constant = curves(1);
  constant.train_labels = at::zeros_like(constant.train_labels);
  EXPECT_NE(refusal([&] { Regression{constant}; }).find("all training targets are equal"), std::string::npos);
  data::Dataset infinite = curves(1);
  infinite.test_labels = infinite.test_labels.clone();
  infinite.test_labels[0][0] = std::numeric_limits<float>::infinity();
  EXPECT_NE(refusal([&] { Regression{infinite}; }).find("holds NaN or infinity"), std::string::npos);
}

}  // namespace
}  // namespace bie::train::test
