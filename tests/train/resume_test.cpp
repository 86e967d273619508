// A run that was interrupted and resumed ends where the uninterrupted one does, to the bit, whatever happened to its
// checkpoints; and no run goes on from what is not its own.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bie/data/checksum.h"
#include "bie/data/tensor_files.h"
#include "bie/models/model_file.h"
#include "bie/train/trainer.h"
#include "formats/folder_lock.h"
#include "tests/support/scratch.h"
#include "tests/train/small_runs.h"

namespace bie::train::test {
namespace {

namespace fs = std::filesystem;
using bie::test::expect_sentence;
using bie::test::read_file;
using bie::test::refusal;
using bie::test::Scratch;
using bie::test::write_file;
using models::WeightForm;

/// A model and how it is trained.
struct Way {
  std::string name;
  models::ModelConfig config;
  TrainOptions options;
  layers::StepSizeGuard guard = {};
};

std::ostream& operator<<(std::ostream& stream, const Way& way) { return stream << way.name; }

/// 36 steps, a checkpoint every five of them.
Way way(OptimizerKind optimizer, int bits, WeightForm weights = WeightForm::usual) {
  Way w{
      std::string(name(optimizer)) + "_" + std::to_string(bits) + "_" + models::name(weights), small_config(bits), {}};
  w.config.weights = weights;
  w.options.optimizer = optimizer;
  w.options.epochs = 3;
  w.options.batch = 32;
  w.options.checkpoint_every = 5;
  return w;
}

std::vector<Way> every_way() {
  std::vector<Way> ways;
  const auto add = [&](Way w, const std::string& what, const auto& change) {
    w.name += "_" + what;
    change(w);
    ways.push_back(w);
  };
  const auto bfloat16 = [](Way& w) { w.options.moments = optim::MomentType::bfloat16; };
  for (const OptimizerKind optimizer : {OptimizerKind::diodemix, OptimizerKind::adam, OptimizerKind::sgd}) {
    ways.push_back(way(optimizer, 32));
    for (const int bits : {8, 4, 1})
      for (const WeightForm weights : {WeightForm::floating, WeightForm::integer}) {
        ways.push_back(way(optimizer, bits, weights));
        if (optimizer != OptimizerKind::sgd) add(ways.back(), "bfloat16", bfloat16);
      }
    for (const WeightForm weights : {WeightForm::floating, WeightForm::integer})
      add(way(optimizer, 1, weights), "frozen", [](Way& w) { w.options.freeze_binary = true; });
    add(way(optimizer, 8), "bare", [](Way& w) {
      w.config.norm = false;
      w.config.quantise_first = true;
      w.options.schedule = optim::ScheduleKind::linear;
      w.options.warmup = 0.6;
      w.options.weight_decay = 0.1;
    });
  }
  for (const int bits : {8, 4, 1})
    add(way(OptimizerKind::diodemix, bits, WeightForm::integer), "wide_renewed", [](Way& w) {
      w.options.wide_gradients = true;
      if (w.config.bits > 1) w.options.renew_scale_every = 7;
    });
  add(way(OptimizerKind::adam, 4), "renewed", [](Way& w) { w.options.renew_scale_every = 7; });
  // A floor at the first value, so that the guard acts all the time.
  add(way(OptimizerKind::diodemix, 4), "guarded", [](Way& w) {
    w.guard.floor = 1;
    w.options.lr = 0.02;
  });
  for (const WeightForm weights : {WeightForm::floating, WeightForm::integer})
    add(way(OptimizerKind::diodemix, 4, weights), "lenet", [](Way& w) {
      w.config.arch = "lenet";
      w.config.depth.reset();
      w.config.image = {1, 16, 16};
      w.options.epochs = 2;
    });
  add(way(OptimizerKind::sgd, 4, WeightForm::integer), "augmented_lenet_with_a_binary_linear", [](Way& w) {
    w.config.arch = "lenet";
    w.config.depth.reset();
    w.config.image = {1, 16, 16};
    w.config.linear_bits = 1;
    w.options.epochs = 2;
    w.options.augment = Augmentations{.crop_flip = true};
  });
  add(way(OptimizerKind::diodemix, 1), "augmented",
      [](Way& w) { w.options.augment = Augmentations{.crop_flip = true}; });
  add(way(OptimizerKind::diodemix, 1), "once_an_epoch", [](Way& w) { w.options.checkpoint_every = 0; });
  return ways;
}

struct Interruption {};

/// One process's part of a run: a fresh model from the same seed, trained to the end or to an interruption.
struct Part {
  std::shared_ptr<models::Classifier> model;
  TrainResult result{};
  std::vector<std::string> notes;
  std::vector<std::int64_t> steps;

  Part(const Way& w, const data::Dataset& data, const std::string& folder, bool resume,
       std::int64_t interrupt_after = 0)
      : model(model_of(w.config)) {
    layers::set_step_size_guard(*model, w.guard);
    TrainOptions o = w.options;
    o.checkpoints = folder;
    o.resume = resume;
    const auto progress = [&](const Progress& p) {
      steps.push_back(p.step);
      if (p.step == interrupt_after) throw Interruption();
    };
    try {
      result = fit(*model, data, o, {progress, [&](const std::string& sentence) { notes.push_back(sentence); }});
      EXPECT_EQ(interrupt_after, 0) << "the run ended before its interruption";
    } catch (const Interruption&) {
    }
  }
};

void expect_the_same(Part& part, Part& whole) {
  EXPECT_TRUE(same(*part.model, *whole.model));
  EXPECT_EQ(part.result.test_score, whole.result.test_score);
  EXPECT_EQ(part.result.optimizer_bytes, whole.result.optimizer_bytes);
  EXPECT_TRUE(part.result.flipped == whole.result.flipped ||
              (std::isnan(part.result.flipped) && std::isnan(whole.result.flipped)))
      << part.result.flipped << " and " << whole.result.flipped;
}

void expect_notes(const std::vector<std::string>& notes, const std::vector<std::vector<std::string>>& parts) {
  ASSERT_EQ(notes.size(), parts.size()) << testing::PrintToString(notes);
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (const std::string& part : parts[i]) expect_sentence(notes[i], "", part);
}

class Ways : public OneThread, public testing::WithParamInterface<Way> {};

TEST_P(Ways, ResumeIsExact) {
  const Way& w = GetParam();
  const data::Dataset data = separable({w.config.image[1], w.config.image[2]});
  const Scratch scratch;
  Part whole(w, data, "", false);
  const bool by_epoch = w.options.checkpoint_every == 0;
  Part first(w, data, scratch.folder(), false, 18);
  EXPECT_FALSE(same(*first.model, *whole.model)) << "or nothing is left to do";
  expect_notes(first.notes, {});
  Part second(w, data, scratch.folder(), true, 21);
  expect_notes(second.notes, {{by_epoch ? "resumed after step 12" : "resumed after step 15"}});
  EXPECT_EQ(second.steps.front(), by_epoch ? 13 : 16);
  Part third(w, data, scratch.folder(), true);
  expect_notes(third.notes, {{by_epoch ? "resumed after step 12" : "resumed after step 20"}});
  expect_the_same(third, whole);
}

INSTANTIATE_TEST_SUITE_P(, Ways, testing::ValuesIn(every_way()), [](const auto& of) { return of.param.name; });

class Resume : public OneThread {
 protected:
  std::string file(std::int64_t step) const {
    const std::string digits = std::to_string(step);
    return scratch_.path("step-" + std::string(12 - digits.size(), '0') + digits + ".safetensors");
  }
  Part run(const Way& w, bool resume, std::int64_t interrupt_after = 0) const {
    return Part(w, data_, scratch_.folder(), resume, interrupt_after);
  }

  const data::Dataset data_ = separable();
  const Scratch scratch_;
  const Way way_ = way(OptimizerKind::diodemix, 1);
};

TEST_F(Resume, ADeepNetGoesOn) {
  Way w = way(OptimizerKind::sgd, 4);
  w.config = {.arch = "resnet20", .bits = 4, .image = {1, 8, 8}, .classes = 3, .hidden = 32, .linear_bits = 1};
  w.options.epochs = 2;
  w.options.batch = 16;
  w.options.checkpoint_every = 3;
  w.options.augment = Augmentations{.crop_flip = true};
  const data::Dataset data = few({8, 8});
  Part whole(w, data, "", false), interrupted(w, data, scratch_.folder(), false, 5);
  Part resumed(w, data, scratch_.folder(), true);
  expect_notes(resumed.notes, {{"resumed after step 3"}});
  expect_the_same(resumed, whole);
}

TEST_F(Resume, WritingCheckpointsChangesNothing) {
  Part without(way_, data_, "", false), with = run(way_, false);
  expect_the_same(with, without);
  EXPECT_EQ(scratch_.count(), 2) << "the newest two are kept";
  EXPECT_TRUE(fs::exists(file(30)) && fs::exists(file(35)));
}

TEST_F(Resume, AFinishedRunHasNothingLeftToDo) {
  Way w = way_;
  w.options.checkpoint_every = 0;
  Part whole = run(w, false), again = run(w, true);
  expect_notes(again.notes, {{"resumed after step 36"}});
  EXPECT_TRUE(again.steps.empty());
  expect_the_same(again, whole);
}

TEST_F(Resume, WithoutACheckpointARunStartsFromTheBeginning) {
  Part whole(way_, data_, "", false), interrupted = run(way_, false, 4), resumed = run(way_, true);
  expect_notes(resumed.notes, {{scratch_.folder(), "no checkpoint", "beginning"}});
  EXPECT_EQ(resumed.steps.front(), 1);
  expect_the_same(resumed, whole);
}

TEST_F(Resume, ADamagedCheckpointIsPassedOver) {
  struct Damage {
    const char* name;
    std::function<std::string(std::string)> change;
  };
  const Damage damages[] = {
      {"flipped in the middle",
       [](std::string bytes) {
         for (std::size_t i = bytes.size() / 2; i < bytes.size() / 2 + 16; ++i) bytes[i] = static_cast<char>(~bytes[i]);
         return bytes;
       }},
      {"last bit flipped", [](std::string bytes) { return bytes.back() ^= 1, bytes; }},
      {"half", [](const std::string& bytes) { return bytes.substr(0, bytes.size() / 2); }},
      {"a byte short", [](const std::string& bytes) { return bytes.substr(0, bytes.size() - 1); }},
      {"a byte long", [](const std::string& bytes) { return bytes + '\0'; }},
      {"empty", [](const std::string&) { return std::string(); }},
      {"zeros", [](const std::string& bytes) { return std::string(bytes.size(), '\0'); }},
      {"header of garbage", [](std::string bytes) { return bytes.replace(8, 64, std::string(64, '\xee')); }},
      {"header too long", [](std::string bytes) { return bytes.replace(0, 8, std::string(8, '\xff')); }},
  };
  Part whole(way_, data_, "", false), interrupted = run(way_, false, 18);
  const std::string older = read_file(file(10)), newest = read_file(file(15));
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    fs::remove_all(scratch_.folder());
    fs::create_directory(scratch_.folder());
    write_file(file(10), older);
    write_file(file(15), damage.change(newest));
    Part resumed = run(way_, true);
    expect_notes(resumed.notes, {{"passed over", file(15)}, {"resumed after step 10"}});
    expect_the_same(resumed, whole);
    EXPECT_EQ(scratch_.count(), 2);
  }
}

TEST_F(Resume, DamagedCheckpointsOfLaterStepsCostNothing) {
  Part whole(way_, data_, "", false), interrupted = run(way_, false, 18);
  for (const std::int64_t step : {25, 30}) write_file(file(step), "damaged");
  const Part second = run(way_, true, 21);
  expect_notes(second.notes, {{"passed over", file(30)}, {"passed over", file(25)}, {"resumed after step 15"}});
  Part third = run(way_, true);
  expect_notes(third.notes, {{"resumed after step 20"}});
  expect_the_same(third, whole);
}

TEST_F(Resume, ADivergedRunKeepsItsGoodCheckpoints) {
  struct Case {
    std::int64_t step;
    const char* sentence;
    std::vector<std::int64_t> kept;
  };
  const Case cases[] = {{10, "training diverged in epoch 1: model.head.weight is not finite", {5}},
                        {13, "training diverged in epoch 2: the loss is not finite", {5, 10}},
                        {36, "training diverged in epoch 3: head.weight is not finite", {30, 35}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.sentence);
    fs::remove_all(scratch_.folder());
    const auto model = model_of(way_.config);
    TrainOptions o = way_.options;
    o.checkpoints = scratch_.folder();
    std::int64_t last = 0;
    const auto poison = [&](const Progress& p) {
      const at::NoGradGuard no_grad;
      last = p.step;
      if (p.step == c.step) model->named_parameters()["head.weight"].fill_(std::nan(""));
    };
    std::string sentence;
    try {
      fit(*model, data_, o, {poison, {}});
    } catch (const c10::Error& error) {
      sentence = error.what_without_backtrace();
    }
    EXPECT_EQ(sentence, c.sentence);
    EXPECT_EQ(last, c.step);
    EXPECT_EQ(scratch_.count(), static_cast<int>(c.kept.size()));
    for (const std::int64_t step : c.kept) EXPECT_TRUE(fs::exists(file(step))) << step;
  }
}

TEST_F(Resume, WhatIsNoCheckpointIsPassedOver) {
  Part whole(way_, data_, "", false), interrupted = run(way_, false, 18);
  models::save_model(*interrupted.model, file(20));
  fs::create_directory(file(27));
  Part resumed = run(way_, true);
  expect_notes(resumed.notes, {{"passed over", file(27)}, {"passed over", file(20)}, {"resumed after step 15"}});
  expect_the_same(resumed, whole);
}

TEST_F(Resume, WhereAllAreDamagedTheNewestIsNamed) {
  const Part interrupted = run(way_, false, 18);
  for (const std::int64_t step : {10, 15}) write_file(file(step), read_file(file(step)).substr(0, 1000));
  expect_sentence(refusal([&] { run(way_, true); }), file(15), "no checkpoint in " + scratch_.folder());
  EXPECT_EQ(read_file(file(10)).size(), 1000u) << "they are left as they are";
}

TEST_F(Resume, LeftoversOfAKilledSaveDoNoHarm) {
  Part whole(way_, data_, "", false), interrupted = run(way_, false, 18);
  const std::string half = read_file(file(15)).substr(0, 5000);
  for (const std::int64_t step : {10, 15, 20, 25}) write_file(file(step) + ".tmp-2147483646", half);
  Part resumed = run(way_, true);
  expect_notes(resumed.notes, {{"resumed after step 15"}});
  expect_the_same(resumed, whole);
  EXPECT_FALSE(fs::exists(file(20) + ".tmp-2147483646")) << "its save was done again";
}

TEST_F(Resume, AFinishedRunGoesOnToMoreEpochs) {
  const Part finished = run(way_, false);
  Way longer = way_;
  longer.options.epochs = way_.options.epochs + 1;
  Part more = run(longer, true);
  expect_notes(more.notes, {{"the run was of 3 epochs and goes on to 4"}, {"resumed after step"}});
  EXPECT_EQ(more.result.steps, finished.result.steps / 3 * 4);
}

TEST_F(Resume, TheCheckpointOfAnotherRunIsRefused) {
  Way ours = way_;
  ours.options.lr = 1e-3;
  ours.options.integer_lr = 1e-2;
  const Part interrupted = run(ours, false, 18);
  Way base = ours;
  const auto expect = [&](const char* part, const auto& change) {
    Way w = base;
    data::Dataset data = data_;
    change(w, data);
    expect_sentence(refusal([&] { Part(w, data, scratch_.folder(), true); }), scratch_.folder(), part);
  };
  expect(": lr is 0.5, the checkpoint's is 0.001", [](Way& w, auto&) { w.options.lr = 0.5; });
  expect(": seed is 3, the checkpoint's is 0", [](Way& w, auto&) { w.options.seed = 3; });
  expect(": epochs is 2, the checkpoint's is 3", [](Way& w, auto&) { w.options.epochs = 2; });
  expect(": batch is 33", [](Way& w, auto&) { w.options.batch = 33; });
  expect(": augment is \"crop-flip\", the checkpoint's is \"none\"",
         [](Way& w, auto&) { w.options.augment = Augmentations{.crop_flip = true}; });
  expect(": weight_decay is 0.1", [](Way& w, auto&) { w.options.weight_decay = 0.1; });
  expect(": integer_lr is 0.5", [](Way& w, auto&) { w.options.integer_lr = 0.5; });
  expect(": integer_memory is 0.5", [](Way& w, auto&) { w.options.integer_memory = 0.5; });
  expect(": schedule is \"linear\"", [](Way& w, auto&) { w.options.schedule = optim::ScheduleKind::linear; });
  expect(": warmup is 0.5", [](Way& w, auto&) { w.options.warmup = 0.5; });
  expect(": wide_gradients is true", [](Way& w, auto&) { w.options.wide_gradients = true; });
  expect(": moments is \"bfloat16\"", [](Way& w, auto&) { w.options.moments = optim::MomentType::bfloat16; });
  expect(": precision is \"bfloat16\"", [](Way& w, auto&) { w.options.bfloat16 = true; });
  expect("step floor 0.5", [](Way& w, auto&) { w.guard.floor = 0.5; });
  expect(": depth is 2", [](Way& w, auto&) { w.config.depth = 2; });
  expect(": data is \"other", [](Way&, data::Dataset& data) { data.name = "other"; });
  expect(": data is \"separable [399,", [](Way&, data::Dataset& data) {
    data.train_images = data.train_images.slice(0, 1);
    data.train_labels = data.train_labels.slice(0, 1);
  });
  expect(": data is ", [](Way&, data::Dataset& data) { data.train_labels = data.train_labels.add(1).remainder(3); });
  // A setting is named before the values that follow from it.
  base.options.lr.reset();
  base.options.integer_lr.reset();
  expect(": optimizer is \"sgd\"", [](Way& w, auto&) { w.options.optimizer = OptimizerKind::sgd; });
  expect(": bits is 8, the checkpoint's is 1", [](Way& w, auto&) { w.config.bits = 8; });
  expect(": weights is \"float\"", [](Way& w, auto&) { w.config.weights = WeightForm::floating; });
  base.options.lr = ours.options.lr;
  expect(": freeze_binary is true", [](Way& w, auto&) { w.options.freeze_binary = true; });
}

TEST_F(Resume, OtherNumbersOfTheSameShapeAreOtherData) {
  const Part interrupted = run(way_, false, 18);
  const auto expect_other = [&](at::Tensor data::Dataset::*part) {
    data::Dataset data = data_;
    data.*part = (data.*part).clone();
    (data.*part).view(-1)[3].add_(1).remainder_(3);
    expect_sentence(refusal([&] { Part(way_, data, scratch_.folder(), true); }), scratch_.folder(),
                    "a checkpoint of another run: data_crc32 is ");
  };
  expect_other(&data::Dataset::train_images);
  expect_other(&data::Dataset::test_images);
  expect_other(&data::Dataset::test_labels);
  // Older checkpoints know nothing of it.
  data::SafetensorsFile old = data::load_safetensors(file(15));
  nlohmann::json json = nlohmann::json::parse(old.metadata.at("bie"));
  ASSERT_EQ(json.at("run").erase("data_crc32"), 1u);
  const std::string text = json.dump();
  data::save_safetensors(file(15), old.tensors,
                         {{"bie", text}, {"crc32", std::to_string(data::checksum(old.tensors, text))}});
  Part resumed = run(way_, true), whole(way_, data_, "", false);
  expect_notes(resumed.notes, {{"resumed after step 15"}});
  expect_the_same(resumed, whole);
}

TEST_F(Resume, TwoRunsDoNotShareAFolder) {
  const auto holder = std::make_unique<formats::FolderLock>("folder", scratch_.folder());
  expect_sentence(refusal([&] { run(way_, false); }), scratch_.folder(), "another run is writing there");
  EXPECT_EQ(scratch_.count(), 0);
}

TEST_F(Resume, AnotherRenewalOfScalesIsAnotherRun) {
  Way w = way(OptimizerKind::diodemix, 8, WeightForm::integer);
  const Part interrupted = run(w, false, 6);
  w.options.renew_scale_every = 2;
  expect_sentence(refusal([&] { run(w, true); }), scratch_.folder(), ": renew_scale_every is 2, the checkpoint's is 0");
}

TEST_F(Resume, AFolderWithCheckpointsIsNotTakenOver) {
  const Part interrupted = run(way_, false, 6);
  const std::string before = read_file(file(5));
  expect_sentence(refusal([&] { run(way_, false); }), scratch_.folder(), "resume");
  EXPECT_EQ(read_file(file(5)), before);
  EXPECT_EQ(scratch_.count(), 1);
}

TEST_F(Resume, AFolderThatCannotBeWrittenIsRefusedBeforeTheWork) {
  write_file(scratch_.path("file"), "");
  // Nobody, not even root, makes files in the last one.
  for (const std::string& folder : {scratch_.path("file"), scratch_.path("file/below"), std::string("/proc/self/none")})
    for (const bool resume : {false, true}) {
      const auto model = model_of(way_.config);
      TrainOptions o = way_.options;
      o.checkpoints = folder;
      o.resume = resume;
      int steps = 0;
      expect_sentence(refusal([&] { fit(*model, data_, o, {[&](const Progress&) { ++steps; }, {}}); }), folder, "");
      EXPECT_EQ(steps, 0) << folder;
    }
}

}  // namespace
}  // namespace bie::train::test
