// Epochs that are counted, runs that end before their last one, and the folder that a run leaves.
#include "bie/train/run_folder.h"

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "bie/train/evaluation.h"
#include "tests/support/scratch.h"
#include "tests/train/small_runs.h"

namespace bie::train::test {
namespace {

using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;

class RunEnd : public OneThread {
 protected:
  data::Dataset data_ = separable();
};

TEST(History, JsonAndBack) {
  const std::vector<Epoch> history = {{1, 12, 0.75, 0.5, 1e-3, 0.25},
                                      {2, 24, 0.125, 1, 0, 1e9, {{"block1", 0.5}}, {{"block2", 0.25}}, 0.75, 2e-3}};
  const std::vector<Epoch> back = parse_history(history_json(history));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(history_json(back), history_json(history));
  EXPECT_EQ(back[1].step, 24);
  EXPECT_EQ(back[1].loss, 0.125);
  EXPECT_EQ(back[1].step_sizes.at("block1"), 0.5);
  EXPECT_EQ(back[1].flipped.at("block2"), 0.25);
  EXPECT_EQ(back[1].train_score, 0.75);
  EXPECT_EQ(back[1].integer_rate, 2e-3);
  EXPECT_TRUE(std::isnan(back[0].train_score));
  EXPECT_TRUE(std::isnan(back[0].integer_rate));
  nlohmann::json old = nlohmann::json::parse(history_json(history));
  for (const char* key : {"train_accuracy", "integer_rate"}) ASSERT_EQ(old[1].erase(key), 1u);
  EXPECT_TRUE(std::isnan(parse_history(old.dump())[1].train_score)) << "of a build that did not count";
  EXPECT_TRUE(parse_history("[]").empty());
  old[0]["step"] = 1e300;
  EXPECT_NE(refusal([&] { parse_history(old.dump()); }).find("step: expected a whole number, got 1e+300"),
            std::string::npos);
  for (const char* bad : {"", "{}", "[1]", "[{\"epoch\": 1}]"})
    EXPECT_NE(refusal([&] { parse_history(bad); }), "") << bad;
}

TEST(History, PatienceCountsFromTheFirstBest) {
  std::vector<Epoch> history;
  const auto add = [&](double accuracy) { history.push_back({0, 100, 0, accuracy, 0, 0}); };
  EXPECT_EQ(best_epoch(history), -1);
  EXPECT_FALSE(out_of_patience(history, 1));
  for (const double accuracy : {0.5, 0.8, 0.8, 0.7}) add(accuracy);
  EXPECT_EQ(best_epoch(history), 1);
  EXPECT_TRUE(out_of_patience(history, 2));
  EXPECT_FALSE(out_of_patience(history, 3));
  EXPECT_FALSE(out_of_patience(history, 0));
}

TEST(History, PatienceLeavesTheFirstStepsOut) {
  std::vector<Epoch> history;
  for (std::int64_t step = 1; step <= 50; ++step) history.push_back({step, step, 0, 0.3, 0, 0});
  EXPECT_FALSE(out_of_patience(history, 1)) << "running statistics are still those of the start";
  history.push_back({51, 51, 0, 0.3, 0, 0});
  EXPECT_TRUE(out_of_patience(history, 1));
  EXPECT_FALSE(out_of_patience(history, 2));
}

TEST_F(RunEnd, EpochsAreTold) {
  std::vector<Epoch> told;
  const auto model = small_model(8);
  Listener listener;
  listener.epoch = [&](const Epoch& epoch) {
    told.push_back(epoch);
    EXPECT_EQ(epoch.test_score, accuracy(*model, data_.test_images, data_.test_labels));
    model->train();
  };
  const TrainResult result = fit(*model, data_, short_run(3), listener);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_EQ(history_json(result.history), history_json(told));
  EXPECT_EQ(result.end, End::finished);
  EXPECT_EQ(result.steps, 36);
  EXPECT_EQ(told[1].epoch, 2);
  EXPECT_EQ(told[1].step, 24);
  EXPECT_LT(told[2].loss, told[0].loss);
  EXPECT_LT(told[2].rate, told[0].rate);
  EXPECT_EQ(result.test_score, told[2].test_score);
}

TEST_F(RunEnd, ListeningChangesNothing) {
  Listener listener;
  listener.epoch = [](const Epoch&) {};
  for (const int bits : {32, 8, 4, 1}) {
    const auto heard = small_model(bits), alone = small_model(bits);
    fit(*heard, data_, short_run(3), listener);
    fit(*alone, data_, short_run(3));
    EXPECT_TRUE(same(*heard, *alone)) << bits;
  }
}

TEST_F(RunEnd, PatienceEndsARun) {
  TrainOptions o = short_run(50);
  o.patience = 2;
  const TrainResult result = fit(*small_model(8), data_, o);
  EXPECT_EQ(result.end, End::patience);
  EXPECT_LT(result.history.size(), 50u);
  EXPECT_GT(result.steps, 50);
  EXPECT_TRUE(out_of_patience(result.history, 2));
  EXPECT_FALSE(out_of_patience({result.history.begin(), result.history.end() - 1}, 2));
  EXPECT_EQ(result.test_score, result.history.back().test_score);
  o.patience = -1;
  EXPECT_NE(refusal([&] { fit(*small_model(8), data_, o); }).find("patience: expected a number of epochs, got -1"),
            std::string::npos);
}

TEST_F(RunEnd, AnInterruptedRunIsKeptAndGoesOnToTheBit) {
  for (const int bits : {8, 1}) {
    const Scratch scratch;
    TrainOptions o = short_run(3);
    const auto whole = small_model(bits), first = small_model(bits), second = small_model(bits);
    std::vector<Epoch> past;
    Listener listener;
    listener.epoch = [](const Epoch&) {};
    listener.past = [&](const std::vector<Epoch>& epochs) { past = epochs; };
    const TrainResult uninterrupted = fit(*whole, data_, o, listener);
    EXPECT_TRUE(past.empty());
    o.checkpoints = scratch.folder();
    int steps = 0;
    listener.stop = [&] { return ++steps == 17; };
    const TrainResult result = fit(*first, data_, o, listener);
    EXPECT_EQ(result.end, End::interrupted);
    EXPECT_EQ(result.steps, 17);
    EXPECT_TRUE(std::isnan(result.test_score));
    EXPECT_TRUE(std::filesystem::exists(scratch.path("step-000000000017.safetensors")));
    o.resume = true;
    listener.stop = {};
    const TrainResult rest = fit(*second, data_, o, listener);
    ASSERT_EQ(past.size(), 1u);
    EXPECT_EQ(past[0].step, 12);
    ASSERT_EQ(rest.history.size(), 3u);
    EXPECT_EQ(rest.history[0].loss, uninterrupted.history[0].loss);
    EXPECT_EQ(rest.history[2].loss, uninterrupted.history[2].loss);
    EXPECT_TRUE(same(*whole, *second));
  }
}

TEST_F(RunEnd, WithoutAFolderAnInterruptionKeepsNothing) {
  Listener listener;
  listener.stop = [] { return true; };
  const TrainResult result = fit(*small_model(4), data_, short_run(3), listener);
  EXPECT_EQ(result.steps, 1);
  EXPECT_EQ(result.end, End::interrupted);
}

TEST_F(RunEnd, EpochsKnowStepSizesAndFlips) {
  Listener listener;
  listener.epoch = [](const Epoch&) {};
  for (const int bits : {8, 1}) {
    SCOPED_TRACE(bits);
    const auto model = small_model(bits);
    const TrainResult result = fit(*model, data_, short_run(3), listener);
    const Epoch& last = result.history.back();
    EXPECT_EQ(last.step_sizes.empty(), bits == 1);
    EXPECT_EQ(last.flipped.empty(), bits != 1);
    double flipped = 0, weights = 0;
    for (const models::ProductLayer& product : model->products()) {
      const auto* layer = dynamic_cast<const layers::IntegerLayer*>(product.layer.get());
      if (layer == nullptr) continue;
      if (bits == 8) {
        EXPECT_EQ(last.step_sizes.at(product.name), layer->scale_a.item<double>());
      } else {
        weights += static_cast<double>(layer->weight_count());
        flipped += last.flipped.at(product.name) * static_cast<double>(layer->weight_count());
      }
    }
    if (bits == 8) continue;
    EXPECT_GT(flipped, 0);
    EXPECT_NEAR(flipped / weights, result.flipped, 1e-12);
    EXPECT_LE(result.history.front().flipped.begin()->second, 1);
  }
}

TEST_F(RunEnd, TheTrainingAccuracyIsThatOfTheImagesTrainedOn) {
  TrainOptions o = short_run(6);
  o.batch = 400;  // a step an epoch: what its forward pass answers is counted
  Listener listener;
  listener.epoch = [](const Epoch&) {};
  const auto model = small_model(32), twin = small_model(32);
  twin->train();
  const at::NoGradGuard no_grad;
  const double wanted =
      twin->forward(data_.train_images).argmax(1).eq(data_.train_labels).to(at::kDouble).mean().item<double>();
  const at::AutoGradMode grad(true);
  const TrainResult result = fit(*model, data_, o, listener);
  EXPECT_EQ(result.history[0].train_score, wanted);
  EXPECT_GT(result.history[5].train_score, wanted);
  o.batch = 33;  // 12 steps an epoch: 4 images are left out
  const double share = fit(*small_model(32), data_, o, listener).history[0].train_score;
  EXPECT_NEAR(share * 396, std::round(share * 396), 1e-9);
}

TEST_F(RunEnd, TheRateOfIntegersIsKnownWhereTheyAreTrained) {
  Listener listener;
  listener.epoch = [](const Epoch&) {};
  for (const int bits : {8, 1}) {
    TrainOptions o = short_run(2);
    o.schedule = optim::ScheduleKind::constant;
    if (bits == 1) o.integer_lr = 3e-3;
    const TrainResult result = fit(*small_model(bits), data_, o, listener);
    if (bits == 1)
      EXPECT_EQ(result.history.back().integer_rate, 3e-3);
    else
      EXPECT_TRUE(std::isnan(result.history.back().integer_rate)) << "float masters";
  }
  TrainOptions frozen = short_run(1);
  frozen.freeze_binary = true;
  EXPECT_TRUE(std::isnan(fit(*small_model(1), data_, frozen, listener).history.back().integer_rate));
}

TEST(RunFolder, TheLogIsThatOfTheHistory) {
  const Scratch scratch;
  const std::string dir = scratch.path("runs/first");
  const Epoch one{1, 12, 0.5, 0.75, 1e-3, 2}, two{2, 24, 0.25, 0.875, 0, 2};
  {
    RunFolder run(dir + "//");
    EXPECT_EQ(run.path(), dir);
    run.start("{\"a\": 1}", {});
    run.add(one);
    run.add(two);
  }
  EXPECT_EQ(read_file(dir + "/config.json"), "{\"a\": 1}\n");
  const std::string both = read_file(dir + "/log.jsonl");
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 2);
  EXPECT_EQ(both.find("{\"schema\":1,"), 0u);
  RunFolder again(dir);  // a run that went on from its first epoch
  again.start("{}", {one});
  EXPECT_EQ(read_file(dir + "/log.jsonl"), both.substr(0, both.find('\n') + 1));
  again.add(two);
  EXPECT_EQ(read_file(dir + "/log.jsonl"), both);
  again.write_report("<html>");
  EXPECT_EQ(read_file(again.report()), "<html>");
}

TEST(RunFolder, AFolderThatCannotBeIsRefused) {
  const Scratch scratch;
  bie::test::write_file(scratch.path("file"), "");
  RunFolder run(scratch.path("file/run"));
  expect_sentence(refusal([&] { run.start("{}", {}); }), scratch.path("file/run"), "cannot be made");
}

}  // namespace
}  // namespace bie::train::test
