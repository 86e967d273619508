// The training loop behind `bie train`.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bie/data/dataset.h"
#include "bie/models/models.h"
#include "bie/optim/diode_mix.h"
#include "bie/train/augmentation.h"
#include "bie/train/history.h"
#include "bie/train/recipe.h"
#include "bie/train/task.h"

namespace bie::train {

struct TrainOptions {
  std::int64_t epochs = 30;
  std::optional<std::int64_t> batch;  ///< images a step; where not given, default_batch of their count
  at::Device device = at::kCPU;       ///< of the training; model and training data move there once (see device_of)
  Augmentation augment = Augmentation::none;
  OptimizerKind optimizer = OptimizerKind::diodemix;
  std::optional<double> lr, weight_decay, integer_lr, integer_memory;  ///< where not given, default_recipe's
  std::optional<optim::ScheduleKind> schedule;
  std::optional<double> warmup;
  bool freeze_binary = false;   ///< leave the binary weights as they start: the twin that shows what training them adds
  bool wide_gradients = false;  ///< integer weights get their gradient as float32 instead of int8
  std::int64_t renew_scale_every = 0;  ///< steps between new values of scale_w (4-bit weights, int8 codes); 0: never
  optim::MomentType moments = optim::MomentType::float32;
  std::uint64_t seed = 0;  ///< order of the data and the optimizer's numbers; the model has been made before

  std::string checkpoints;            ///< folder for training checkpoints; empty: none are written
  std::int64_t checkpoint_every = 0;  ///< steps; 0: once an epoch
  bool resume = false;                ///< go on from the newest good checkpoint there

  /// Epochs without a better test accuracy after which the run ends; 0: it never does. The first 50 steps do not count:
  /// until then the running statistics of BatchNorm, and with them the accuracy, are still those of the start.
  std::int64_t patience = 0;
};

/// The rates of a run: those of the options, and the defaults of the model's width for the others.
Recipe recipe_of(const models::ModelConfig& config, const TrainOptions& options);

struct Progress {
  std::int64_t epoch, epochs;  ///< epochs done, of how many
  std::int64_t step, steps;    ///< steps done, of how many
  double loss;                 ///< mean of the epoch so far
  std::int64_t done;           ///< steps of this process: those before a resume are not among them
  double seconds;              ///< since its first step
};

/// What a run has to say while it goes on; each may be empty.
struct Listener {
  std::function<void(const Progress&)> progress;  ///< after every step; on a GPU every 20 steps and after each epoch
  std::function<void(const std::string&)> note;   ///< a sentence: a checkpoint passed over, a run resumed
  std::function<void()> started = {};             ///< once, before the first step: nothing is refused from here on
  /// After each epoch. The test accuracy of an epoch is measured for this and for `patience` alone.
  std::function<void(const Epoch&)> epoch = {};
  /// The epochs that a resumed run has behind it; once, before `started`.
  std::function<void(const std::vector<Epoch>&)> past = {};
  /// Asked after every step: whether the run is to end here, with a checkpoint where it has a folder for them.
  std::function<bool()> stop = {};
};

enum class End {
  finished,     ///< all epochs are done
  patience,     ///< the test accuracy got no better
  interrupted,  ///< Listener::stop said so
};

struct TrainResult {
  double test_accuracy;  ///< NaN for an interrupted run
  double flipped;        ///< share of binary weights whose sign differs from the start's; NaN without binary weights
  double seconds;        ///< of this process
  std::int64_t optimizer_bytes;  ///< of all moments
  End end;
  std::int64_t steps;          ///< done, those before a resume included
  std::vector<Epoch> history;  ///< the epochs whose test accuracy was measured, those before a resume included
};

/// Trains in place and leaves the model in evaluation mode on the options' device; an interrupted one is left as it was
/// in training. The same options, data and thread
/// count give the same model to the bit, whether the run was interrupted and resumed or not. A run may go on on another
/// device; the bits are then those of neither alone.
/// A ValueError where data and model do not fit each other, an option is out of range, or the checkpoints are not this
/// run's; a c10::Error where the training diverges, before it writes that to a checkpoint.
/// Accuracies, here and in the history, are the task's scores. A task of another kind than classification() takes its
/// targets for labels: Dataset::train_labels and test_labels.
TrainResult fit(models::Classifier& model, const data::Dataset& data, const TrainOptions& options,
                const Listener& listener = {}, const Task& task = classification());

}  // namespace bie::train
