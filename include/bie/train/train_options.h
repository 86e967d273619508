// Options of a training run.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "bie/models/model_config.h"
#include "bie/optim/diode_mix.h"
#include "bie/train/augmentation.h"
#include "bie/train/recipe.h"

namespace bie::train {

struct TrainOptions {
  std::int64_t epochs = 30;
  std::optional<std::int64_t> batch;  ///< images a step; where not given, default_batch of their count
  at::Device device = at::kCPU;       ///< of the training; model and training data move there once (see device_of)
  Augmentations augment = {};
  OptimizerKind optimizer = OptimizerKind::diodemix;
  std::optional<double> lr, weight_decay, integer_lr, integer_memory;  ///< where not given, default_recipe's
  std::optional<optim::ScheduleKind> schedule;
  std::optional<double> warmup;
  bool balanced_classes = false;  ///< each class weighs as much as another in the loss, however many samples it has
  bool freeze_binary = false;   ///< leave the binary weights as they start: the twin that shows what training them adds
  bool wide_gradients = false;  ///< integer weights get their gradient as float32 instead of int8
  std::int64_t renew_scale_every = 0;  ///< steps between new values of scale_w (4-bit weights, int8 codes); 0: never
  optim::MomentType moments = optim::MomentType::float32;
  bool bfloat16 = false;   ///< forward passes of training under autocast to bfloat16; evaluations are in float32
  std::uint64_t seed = 0;  ///< order of the data and the optimizer's numbers; the model has been made before

  std::string checkpoints;            ///< folder for training checkpoints; empty: none are written
  std::int64_t checkpoint_every = 0;  ///< steps; 0: once per epoch
  bool resume = false;                ///< go on from the newest good checkpoint there
  bool keep_best = false;             ///< end with the weights of the epoch that the validation samples judge best

  /// Epochs without a better score (judged_by) after which the run ends; 0: it never does. The first 50 steps do not
  /// count: until then the running statistics of BatchNorm, and with them the accuracy, are still those of the start.
  std::int64_t patience = 0;
};

/// The rates of a run: those of the options, and the defaults of the model's width for the others.
Recipe recipe_of(const models::ModelConfig& config, const TrainOptions& options);

/// Throws a ValueError where an option is out of range or would do nothing to the model: what fit() refuses before it
/// looks at the data.
void check_options(const models::Classifier& model, const TrainOptions& options);

}  // namespace bie::train
