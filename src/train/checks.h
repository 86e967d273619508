// Checks of a run before its first step.
#pragma once

#include "bie/data/dataset.h"
#include "bie/models/classifier.h"
#include "bie/train/task.h"
#include "bie/train/train_options.h"

namespace bie::train {

/// Throws a ValueError where data and model do not fit each other, an option is out of range or would do nothing, or
/// the folder of the checkpoints cannot be written.
void check_run(const models::Classifier& model, const data::Dataset& data, const TrainOptions& options,
               const Task& task);

}  // namespace bie::train
