// Training that starts from a trained float net, and ends with its best epoch.
#include "bie/train/warm_start.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bie/layers/state_dict.h"
#include "bie/train/evaluation.h"
#include "bie/train/post_training.h"
#include "tests/support/scratch.h"
#include "tests/train/small_runs.h"

namespace bie::train::test {
namespace {

using bie::test::expect_sentence;
using bie::test::refusal;

/// A float model that tells the classes apart.
std::shared_ptr<models::Classifier> trained_float(const data::Dataset& data) {
  const auto model = small_model(32);
  fit(*model, data, short_run(3));
  return model;
}

class WarmStart : public OneThread {
 protected:
  const data::Dataset data_ = separable();
  const std::shared_ptr<models::Classifier> source_ = trained_float(data_);
};

TEST_F(WarmStart, WeightsNormsAndStepSizesAreTaken) {
  for (const int bits : {8, 4, 1}) {
    SCOPED_TRACE(bits);
    const auto model = model_of(with_net_of(small_config(bits), source_->config()), 7);
    EXPECT_TRUE(start_from(*model, *source_, data_.train_images).empty());
    const layers::StateDict theirs = layers::state_dict(*source_, false), own = layers::state_dict(*model, false);
    std::int64_t common = 0;
    for (const auto& [name, tensor] : own) {
      const auto found = theirs.find(name);
      if (found == theirs.end() || found->second.sizes() != tensor.sizes()) continue;
      ++common;
      if (bits == 1 && tensor.scalar_type() == at::kChar) continue;  // signs
      EXPECT_TRUE(tensor.equal(found->second)) << name;
    }
    EXPECT_GT(common, 8);
    std::int64_t quantised = 0;
    source_->set_probe([&](const std::string& name, const at::Tensor& x) {
      for (const models::ProductLayer& product : model->products()) {
        const auto* layer = dynamic_cast<const layers::IntegerLayer*>(product.layer.get());
        if (layer == nullptr || product.name != name) continue;
        ++quantised;
        if (bits > 1) EXPECT_FLOAT_EQ(layer->scale_a.item<float>(), step_size(x, bits, StepRule::mse, 100)) << name;
      }
    });
    source_->forward(data_.train_images);
    source_->set_probe({});
    EXPECT_GT(quantised, 0);
  }
}

TEST_F(WarmStart, EightBitsAnswerAsTheFloatNetBeforeAnyStep) {
  const auto model = model_of(with_net_of(small_config(8), source_->config()), 7);
  start_from(*model, *source_, data_.train_images);
  const at::Tensor wanted = logits(*source_, data_.test_images), found = logits(*model, data_.test_images);
  EXPECT_LT((found - wanted).abs().max().item<double>(), 0.05 * wanted.abs().max().item<double>());
}

TEST_F(WarmStart, OtherClassesGetALastLayerOfTheirOwn) {
  models::ModelConfig config = with_net_of(small_config(4), source_->config());
  config.classes = 5;
  const auto model = model_of(config);
  const at::Tensor before = model->products().back().layer->named_parameters()["weight"].clone();
  EXPECT_EQ(start_from(*model, *source_, data_.train_images), std::vector<std::string>{"head"});
  EXPECT_TRUE(model->products().back().layer->named_parameters()["weight"].equal(before));
}

TEST_F(WarmStart, OtherShapesAndQuantisedModelsAreRefused) {
  models::ModelConfig wide = small_config(4);
  wide.hidden *= 2;
  expect_sentence(refusal([&] { start_from(*model_of(wide), *source_, data_.train_images); }), "has weights of",
                  "those of the model to start from are");
  models::ModelConfig deep = small_config(4);
  deep.depth = 3;
  expect_sentence(refusal([&] { start_from(*model_of(deep), *source_, data_.train_images); }),
                  "the model to start from has", "layers");
  expect_sentence(refusal([&] { start_from(*small_model(4), *small_model(8), data_.train_images); }),
                  "the model to start from: expected a float one, got a quantised one", "");
}

/// Every fourth training sample is for validation.
data::Dataset with_validation() {
  data::Dataset data = separable();
  const at::Tensor rows = at::arange(data.train_images.size(0));
  const auto part = [&](const at::Tensor& chosen, at::Tensor* images, at::Tensor* labels) {
    *images = data.train_images.index_select(0, chosen);
    *labels = data.train_labels.index_select(0, chosen);
  };
  at::Tensor images, labels;
  part(rows.masked_select(rows.remainder(4).eq(0)), &data.validation_images, &data.validation_labels);
  part(rows.masked_select(rows.remainder(4).ne(0)), &images, &labels);
  data.train_images = images;
  data.train_labels = labels;
  return data;
}

/// A rate that ruins what the first epochs reach.
TrainOptions wild_run() {
  TrainOptions o = short_run(6);
  o.lr = 3;
  o.schedule = optim::ScheduleKind::linear;
  o.warmup = 0.95;
  o.optimizer = OptimizerKind::sgd;
  o.keep_best = true;
  return o;
}

class KeepBest : public OneThread {};

TEST_F(KeepBest, TheWeightsAreThoseOfTheBestEpoch) {
  const data::Dataset data = with_validation();
  const auto model = small_model(8);
  std::vector<layers::StateDict> states;
  Listener listener;
  listener.epoch = [&](const Epoch&) {
    layers::StateDict copy;
    for (const auto& [name, tensor] : layers::state_dict(*model, false)) copy[name] = tensor.clone();
    states.push_back(std::move(copy));
  };
  const TrainResult result = fit(*model, data, wild_run(), listener);
  ASSERT_EQ(result.history.size(), 6u);
  std::size_t best = 0;
  for (std::size_t i = 1; i < 6; ++i)
    if (result.history[i].validation_score > result.history[best].validation_score) best = i;
  EXPECT_LT(best, 5u) << "or there is nothing to keep";
  EXPECT_EQ(static_cast<std::size_t>(best_epoch(result.history)), best);
  for (const auto& [name, tensor] : layers::state_dict(*model, false))
    EXPECT_TRUE(tensor.equal(states[best].at(name))) << name;
  EXPECT_EQ(result.test_score, result.history[best].test_score);
  EXPECT_TRUE(result.test_outputs.equal(logits(*model, data.test_images))) << "those of the weights that are kept";
}

TEST_F(KeepBest, AResumedRunKeepsTheSameAndCountsWholeEpochs) {
  const data::Dataset data = with_validation();
  const auto run = [&](const std::string& folder, bool resume, std::int64_t stop_after, TrainResult* result) {
    const auto model = small_model(8);
    TrainOptions o = wild_run();
    o.checkpoints = folder;
    o.resume = resume;
    std::int64_t steps = 0;
    Listener listener;
    listener.epoch = [](const Epoch&) {};
    listener.progress = [&](const Progress& p) { steps = p.step; };
    listener.stop = [&] { return steps == stop_after; };
    *result = fit(*model, data, o, listener);
    return model;
  };
  const bie::test::Scratch scratch, other;
  TrainResult whole, first, second;
  const auto wanted = run(other.folder(), false, 0, &whole);
  const std::int64_t per_epoch = whole.steps / 6;
  run(scratch.folder(), false, 4 * per_epoch + per_epoch / 2, &first);
  EXPECT_EQ(first.end, End::interrupted);
  const auto found = run(scratch.folder(), true, 0, &second);
  EXPECT_TRUE(same(*found, *wanted));
  ASSERT_EQ(second.history.size(), whole.history.size());
  for (std::size_t i = 0; i < whole.history.size(); ++i) {
    EXPECT_EQ(second.history[i].loss, whole.history[i].loss) << "of all its steps";
    EXPECT_EQ(second.history[i].train_score, whole.history[i].train_score);
    EXPECT_EQ(second.history[i].validation_score, whole.history[i].validation_score);
  }
  EXPECT_GT(second.seconds, first.seconds) << "both parts";
}

TEST_F(KeepBest, WithoutValidationSamplesItIsRefused) {
  TrainOptions o = short_run(1);
  o.keep_best = true;
  expect_sentence(refusal([&] { fit(*small_model(8), separable(), o); }), "keep_best wants validation samples", "");
}

TEST_F(KeepBest, PatienceGoesByTheValidationScore) {
  std::vector<Epoch> history;
  for (const double validation : {0.5, 0.9, 0.8, 0.7}) {
    const auto number = static_cast<std::int64_t>(history.size()) + 1;
    Epoch epoch{number, 100 * number, 1, 0.1 * static_cast<double>(number), 1};
    epoch.validation_score = validation;
    history.push_back(epoch);
  }
  EXPECT_EQ(best_epoch(history), 1);
  EXPECT_TRUE(out_of_patience(history, 2));
  for (Epoch& epoch : history) epoch.validation_score = std::nan("");
  EXPECT_EQ(best_epoch(history), 3) << "by the test score";
  EXPECT_FALSE(out_of_patience(history, 2));
}

}  // namespace
}  // namespace bie::train::test
