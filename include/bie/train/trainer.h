// The training loop behind `bie train`.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bie/data/dataset.h"
#include "bie/models/classifier.h"
#include "bie/train/history.h"
#include "bie/train/task.h"
#include "bie/train/train_options.h"

namespace bie::train {

struct Progress {
  std::int64_t epoch, epochs;  ///< epochs done, of how many
  std::int64_t step, steps;    ///< steps done, of how many
  double loss;                 ///< mean of the epoch so far
  std::int64_t done;           ///< steps of this process: those before a resume are not among them
  double seconds;              ///< since its first step
};

/// Callbacks of a run; each may be empty.
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
  patience,     ///< the test score got no better
  interrupted,  ///< Listener::stop said so
};

struct TrainResult {
  double test_score;  ///< NaN for an interrupted run
  double flipped;     ///< share of binary weights whose sign differs from the start's; NaN without binary weights
  double seconds;     ///< of all processes of the run
  std::int64_t optimizer_bytes;  ///< of all moments
  End end;
  std::int64_t steps;            ///< done, those before a resume included
  std::vector<Epoch> history;    ///< the epochs whose test score was measured, those before a resume included
  at::Tensor test_outputs = {};  ///< of the test samples, on the CPU (logits()); undefined for an interrupted run
};

/// Trains in place and leaves the model in evaluation mode on the options' device; an interrupted one is left as it was
/// in training. The same options, data and thread count give the same model to the bit, whether the run was interrupted
/// and resumed or not. A run may go on on another device; the bits are then those of neither alone. Throws a ValueError
/// where data and model do not fit each other, an option is out of range, or the checkpoints are not this run's; a
/// c10::Error where the training diverges, before it writes that to a checkpoint. Accuracies, here and in the history,
/// are the task's scores. A task of another kind than classification() takes its targets for labels:
/// Dataset::train_labels and test_labels.
TrainResult fit(models::Classifier& model, const data::Dataset& data, const TrainOptions& options,
                const Listener& listener = {}, const Task& task = classification());

}  // namespace bie::train
