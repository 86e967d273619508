// The training loop behind `bie train`.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bie/io/dataset.h"
#include "bie/nn/models.h"
#include "bie/optim/diode_mix.h"
#include "bie/train/augmentation.h"
#include "bie/train/recipe.h"

namespace bie::train {

struct TrainOptions {
  std::int64_t epochs = 30;
  std::int64_t batch = 64;
  at::Device device = at::kCPU;  ///< of the training; model and training data move there once (see device_of)
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
};

struct Progress {
  std::int64_t epoch, epochs;  ///< epochs done, of how many
  std::int64_t step, steps;    ///< steps done, of how many
  double loss;                 ///< mean of the epoch so far
};

/// What a run has to say while it goes on; each may be empty.
struct Listener {
  std::function<void(const Progress&)> progress;  ///< after every step; on a GPU every 20 steps and after each epoch
  std::function<void(const std::string&)> note;   ///< a sentence: a checkpoint passed over, a run resumed
  std::function<void()> started = {};             ///< once, before the first step: nothing is refused from here on
};

struct TrainResult {
  double test_accuracy;
  double flipped;  ///< share of binary weights whose sign differs from the start's; NaN without binary weights
  double seconds;  ///< of this process
  std::int64_t optimizer_bytes;  ///< of all moments
};

/// Trains in place and leaves the model in evaluation mode on the options' device. The same options, data and thread
/// count give the same model to the bit, whether the run was interrupted and resumed or not. A run may go on on another
/// device; the bits are then those of neither alone.
/// A ValueError where data and model do not fit each other, an option is out of range, or the checkpoints are not this
/// run's; a c10::Error where the training diverges, before it writes that to a checkpoint.
TrainResult fit(nn::Classifier& model, const io::Dataset& data, const TrainOptions& options,
                const Listener& listener = {});

/// [images, classes] on the CPU, in evaluation mode on the model's device.
at::Tensor logits(nn::Classifier& model, const at::Tensor& images);

/// Share of images whose largest logit is the label's, in evaluation mode.
double accuracy(nn::Classifier& model, const at::Tensor& images, const at::Tensor& labels);

/// Median seconds of one forward pass over the first `batch` images (repeated as needed), in evaluation mode and on the
/// device of the model, until it is done there.
double latency(nn::Classifier& model, const at::Tensor& images, std::int64_t batch, int repeats);

}  // namespace bie::train
