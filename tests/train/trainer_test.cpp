// fit, accuracy and latency: training works at every width, repeats bit for bit, and refuses what does not fit.
#include "bie/train/trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "bie/nn/model_file.h"
#include "tests/io/scratch.h"

namespace bie::train::test {
namespace {

using io::test::refusal;

constexpr int widths[] = {32, 8, 4, 1};

/// `count` noisy copies of one random picture a class, and their labels.
std::pair<at::Tensor, at::Tensor> pictures(std::int64_t count, at::Generator rng, const at::Tensor& prototypes) {
  const at::Tensor labels = at::randint(0, prototypes.size(0), {count}, rng, at::kLong);
  const at::Tensor noise = at::randn({count, 1, 4, 5}, rng).mul(0.3);
  return {prototypes.index_select(0, labels).add(noise), labels};
}

io::Dataset separable() {
  const at::Generator rng(at::detail::createCPUGenerator(5));
  const at::Tensor prototypes = at::randn({3, 1, 4, 5}, rng);
  const auto [train_images, train_labels] = pictures(400, rng, prototypes);
  const auto [test_images, test_labels] = pictures(150, rng, prototypes);
  return {train_images, train_labels, test_images, test_labels, 3, "separable"};
}

std::shared_ptr<nn::Classifier> small_model(int bits, std::uint64_t seed = 1) {
  at::manual_seed(seed);
  return nn::make_model({"mlp", bits, {1, 4, 5}, 3, 32, 1});
}

/// The same sums on every machine, however busy: one thread.
class Trainer : public testing::Test {
 protected:
  Trainer() : threads_(at::get_num_threads()) { at::set_num_threads(1); }
  ~Trainer() override { at::set_num_threads(threads_); }

  const io::Dataset data_ = separable();

 private:
  int threads_;
};

TrainOptions short_run(std::int64_t epochs = 8) {
  TrainOptions o;
  o.epochs = epochs;
  o.batch = 32;
  o.lr = 5e-3;
  return o;
}

std::map<std::string, at::Tensor> state(const nn::Classifier& model) {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : model.named_parameters()) tensors[item.key()] = item.value().detach();
  for (const auto& item : model.named_buffers()) tensors[item.key()] = item.value().detach();
  return tensors;
}

bool same(const nn::Classifier& a, const nn::Classifier& b) {
  const auto of_a = state(a), of_b = state(b);
  if (of_a.size() != of_b.size()) return false;
  for (const auto& [name, tensor] : of_a)
    if (of_b.count(name) == 0 || !tensor.equal(of_b.at(name))) return false;
  return true;
}

TEST_F(Trainer, LearnsWhatIsSeparableAtEveryWidth) {
  for (const int bits : widths) {
    const auto model = small_model(bits);
    EXPECT_LT(accuracy(*model, data_.test_images, data_.test_labels), 0.8) << bits;
    const TrainResult result = fit(*model, data_, short_run(), {});
    EXPECT_GE(result.test_accuracy, 0.97) << bits;
    EXPECT_EQ(result.test_accuracy, accuracy(*model, data_.test_images, data_.test_labels)) << bits;
    EXPECT_GT(result.seconds, 0);
    EXPECT_FALSE(model->is_training());
  }
}

TEST_F(Trainer, FlippedIsAShareOfTheBinaryWeights) {
  for (const int bits : {32, 8, 4}) {
    const auto model = small_model(bits);
    EXPECT_TRUE(std::isnan(fit(*model, data_, short_run(1), {}).flipped)) << bits;
  }
  const auto model = small_model(1);
  const auto& layer = *model->quant_layers()[0];
  model->quant_layers()[0]->prepare_params();
  const at::Tensor before = layer.weight.lt(0);
  const double flipped = fit(*model, data_, short_run(), {}).flipped;
  EXPECT_GT(flipped, 0.01);
  EXPECT_LE(flipped, 1);
  EXPECT_DOUBLE_EQ(flipped, before.ne(layer.weight.lt(0)).to(at::kDouble).mean().item<double>());
}

TEST_F(Trainer, TheBinaryRateIsThatOfTheBinaryWeightsAlone) {
  TrainOptions still = short_run(2);
  still.binary_lr = 1e-12;
  const auto model = small_model(1);
  EXPECT_EQ(fit(*model, data_, still, {}).flipped, 0);
  const auto start = small_model(1);
  EXPECT_FALSE(model->named_parameters()["head.weight"].equal(start->named_parameters()["head.weight"]));

  still = short_run(2);
  still.lr = 1e-12;
  const auto other = small_model(1);
  EXPECT_GT(fit(*other, data_, still, {}).flipped, 0);
  EXPECT_TRUE(other->named_parameters()["head.weight"].allclose(start->named_parameters()["head.weight"], 0, 1e-6));
}

TEST_F(Trainer, FrozenBinaryWeightsStayWhileTheRestTrains) {
  TrainOptions o = short_run(2);
  o.freeze_binary = true;
  const auto model = small_model(1), start = small_model(1);
  start->quant_layers()[0]->prepare_params();
  EXPECT_EQ(fit(*model, data_, o, {}).flipped, 0);
  EXPECT_TRUE(model->quant_layers()[0]->weight.equal(start->quant_layers()[0]->weight));
  EXPECT_FALSE(model->named_parameters()["head.weight"].equal(start->named_parameters()["head.weight"]));
}

TEST_F(Trainer, TheSameSeedGivesTheSameBits) {
  for (const int bits : widths) {
    const auto trained = [&](std::uint64_t seed, std::uint64_t model_seed) {
      const auto model = small_model(bits, model_seed);
      TrainOptions o = short_run(2);
      o.seed = seed;
      fit(*model, data_, o, {});
      return model;
    };
    const auto first = trained(1, 1);
    EXPECT_TRUE(same(*first, *trained(1, 1))) << bits;
    EXPECT_FALSE(same(*first, *trained(2, 1))) << bits << ": the order of the data";
    EXPECT_FALSE(same(*first, *trained(1, 2))) << bits << ": the model's start";
  }
}

TEST_F(Trainer, TheOrderDoesNotDependOnTheGlobalGenerator) {
  const auto first = small_model(8), second = small_model(8);
  fit(*first, data_, short_run(1), {});
  at::manual_seed(12345);
  fit(*second, data_, short_run(1), {});
  EXPECT_TRUE(same(*first, *second));
}

TEST_F(Trainer, EveryStepIsReported) {
  const auto model = small_model(8);
  std::vector<Progress> seen;
  fit(*model, data_, short_run(3), [&](const Progress& p) { seen.push_back(p); });
  ASSERT_EQ(seen.size(), 3u * 12u);  // 400 images, 12 whole batches of 32
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(seen[i].steps, 36);
    EXPECT_EQ(seen[i].epoch, static_cast<std::int64_t>((i + 1) / 12)) << "epochs done";
    EXPECT_EQ(seen[i].epochs, 3);
    EXPECT_TRUE(std::isfinite(seen[i].loss));
  }
  EXPECT_NEAR(seen[0].loss, std::log(3), 0.9) << "the loss of guessing";
  EXPECT_LT(seen.back().loss, 0.5 * seen[11].loss);
}

TEST_F(Trainer, RatesFallToZero) {
  const auto model = small_model(1);
  const TrainOptions o = short_run(3);
  at::Tensor before = model->named_parameters()["head.bias"].detach().clone();
  std::vector<double> moves;
  fit(*model, data_, o, [&](const Progress&) {
    const at::Tensor bias = model->named_parameters()["head.bias"].detach();
    moves.push_back(bias.sub(before).abs().max().item<double>());
    before = bias.clone();
  });
  EXPECT_NEAR(moves.front(), o.lr, 0.01 * o.lr) << "the first step of Adam is the rate itself";
  EXPECT_GT(moves[moves.size() / 2], 0);
  EXPECT_LT(moves.back(), 0.01 * o.lr);
}

TEST_F(Trainer, TheStepSizeOfABinaryLayerHasAHundredthOfTheRate) {
  const auto model = small_model(1);
  const TrainOptions o = short_run(2);
  const auto scale = [&] { return model->quant_layers()[0]->scale_a.item<double>(); };
  double first = 0, furthest = 0;
  fit(*model, data_, o, [&](const Progress& p) {
    if (p.step == 1) first = scale();
    furthest = std::max(furthest, std::fabs(scale() - first));
  });
  EXPECT_GT(furthest, 0);
  EXPECT_LT(furthest, 24 * 0.02 * o.lr) << "24 steps";
}

TEST_F(Trainer, GradientsDoNotAddUpOverSteps) {
  const auto model = small_model(1);
  TrainOptions o = short_run(3);
  o.lr = o.binary_lr = 1e-12;
  o.batch = 400;  // all images: nothing changes from step to step
  std::vector<at::Tensor> grads;
  fit(*model, data_, o,
      [&](const Progress&) { grads.push_back(model->named_parameters()["head.weight"].grad().clone()); });
  ASSERT_EQ(grads.size(), 3u);
  EXPECT_TRUE(grads[0].ne(0).any().item<bool>());
  EXPECT_TRUE(grads[2].allclose(grads[0], 1e-2, 1e-4));
}

TEST_F(Trainer, ABatchLargerThanTheDataIsTheData) {
  const auto model = small_model(4);
  TrainOptions o = short_run(2);
  o.batch = 100000;
  std::int64_t steps = 0;
  fit(*model, data_, o, [&](const Progress& p) { steps = p.steps; });
  EXPECT_EQ(steps, 2);
}

TEST_F(Trainer, TrainingGoesOnAfterEvaluationAndAfterSaving) {
  const auto model = small_model(4);
  fit(*model, data_, short_run(2), {});
  const at::Tensor before = model->quant_layers()[0]->weight.detach().clone();
  for (const auto& layer : model->quant_layers()) layer->generate_quantized_weight();
  const TrainResult result = fit(*model, data_, short_run(6), {});
  EXPECT_FALSE(model->quant_layers()[0]->weight.equal(before));
  EXPECT_GE(result.test_accuracy, 0.97);
}

TEST_F(Trainer, APackedModelHasNoWeightToTrain) {
  for (const int bits : {8, 4, 1}) {
    const auto model = small_model(bits);
    for (const auto& layer : model->quant_layers()) layer->generate_quantized_weight(true);
    EXPECT_NE(refusal([&] { fit(*model, data_, short_run(1), {}); }), "") << bits;
  }
}

TEST_F(Trainer, DataThatDoNotFitTheModelAreRefused) {
  const auto expect = [&](const io::Dataset& data, const std::string& part) {
    const auto model = small_model(8), untouched = small_model(8);
    const std::string sentence = refusal([&] { fit(*model, data, short_run(1), {}); });
    EXPECT_NE(sentence.find(part), std::string::npos) << "wanted: " << part << "\ngot: " << sentence;
    EXPECT_NE(sentence.find("separable"), std::string::npos) << sentence;
    EXPECT_TRUE(same(*model, *untouched));
  };
  io::Dataset data = data_;
  data.train_images = data_.train_images.transpose(2, 3);
  expect(data, "1, 5, 4]");
  data = data_;
  data.test_images = data_.test_images.transpose(2, 3);
  expect(data, "1, 5, 4]");
  data = data_;
  data.classes = 4;
  expect(data, "4 classes");
  for (const std::int64_t count : {0, 1}) {
    data = data_;
    data.train_images = data_.train_images.slice(0, 0, count);
    data.train_labels = data_.train_labels.slice(0, 0, count);
    expect(data, std::to_string(count));
  }
  data = data_;
  data.train_labels = data_.train_labels.slice(0, 0, 399);
  expect(data, "399");
  data = data_;
  data.test_images = data_.test_images.slice(0, 0, 0);
  data.test_labels = data_.test_labels.slice(0, 0, 0);
  expect(data, "test");
}

TEST_F(Trainer, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const auto expect = [&](const TrainOptions& o) {
    const auto model = small_model(1), untouched = small_model(1);
    EXPECT_NE(refusal([&] { fit(*model, data_, o, {}); }), "")
        << o.epochs << " " << o.batch << " " << o.lr << " " << o.binary_lr;
    EXPECT_TRUE(same(*model, *untouched));
  };
  TrainOptions o;
  for (const std::int64_t epochs : {0, -1}) {
    o = short_run(epochs);
    expect(o);
  }
  for (const std::int64_t batch : {1, 0, -64}) {
    o = short_run(1);
    o.batch = batch;
    expect(o);
  }
  for (const double rate : {nan, infinity, 0.0, -1e-3}) {
    o = short_run(1);
    o.lr = rate;
    expect(o);
    o = short_run(1);
    o.binary_lr = rate;
    expect(o);
  }
}

TEST_F(Trainer, AccuracyCountsTheLargestLogit) {
  const auto model = small_model(32);
  const at::Tensor images = data_.test_images;
  at::Tensor predicted;
  {
    const at::NoGradGuard no_grad;
    model->eval();
    predicted = model->forward(images).argmax(1);
  }
  EXPECT_EQ(accuracy(*model, images, predicted), 1);
  EXPECT_EQ(accuracy(*model, images, predicted.add(1).remainder(3)), 0);
  const at::Tensor mixed = predicted.clone();
  mixed.slice(0, 0, 30).add_(1).remainder_(3);
  EXPECT_DOUBLE_EQ(accuracy(*model, images, mixed), 0.8);
  // Beyond one batch of the evaluation.
  const at::Tensor many = images.repeat({5, 1, 1, 1}), labels = predicted.repeat({5});
  EXPECT_EQ(accuracy(*model, many, labels), 1);
  EXPECT_FALSE(model->is_training());
  EXPECT_NE(refusal([&] { accuracy(*model, images.slice(0, 0, 0), predicted.slice(0, 0, 0)); }), "");
}

TEST_F(Trainer, LatencyIsPositiveAndRepeatsImages) {
  const auto model = small_model(1);
  EXPECT_GT(latency(*model, data_.test_images, 1, 5), 0);
  EXPECT_GT(latency(*model, data_.test_images.slice(0, 0, 3), 64, 2), 0);
  EXPECT_NE(refusal([&] { latency(*model, data_.test_images, 0, 5); }), "");
  EXPECT_NE(refusal([&] { latency(*model, data_.test_images, 1, 0); }), "");
  EXPECT_NE(refusal([&] { latency(*model, data_.test_images.slice(0, 0, 0), 1, 5); }), "");
}

TEST_F(Trainer, DigitsAreLearntAtEveryWidth) {
  const io::Dataset digits = io::load_dataset("digits");
  for (const int bits : widths) {
    at::manual_seed(0);
    const auto model = nn::make_model({"mlp", bits, {1, 8, 8}, 10, 256, 2});
    TrainOptions o;
    o.epochs = 6;
    const TrainResult result = fit(*model, digits, o, {});
    EXPECT_GE(result.test_accuracy, 0.93) << bits;
    const io::test::Scratch scratch;
    nn::save_model(*model, scratch.path("m"));
    const auto loaded = nn::load_model(scratch.path("m"));
    EXPECT_EQ(accuracy(*loaded, digits.test_images, digits.test_labels), result.test_accuracy) << bits;
  }
}

}  // namespace
}  // namespace bie::train::test
