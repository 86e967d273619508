// What train and demo share: a model made from a seed, trained with a progress bar.
#pragma once

#include <memory>
#include <string>

#include "bie/io/dataset.h"
#include "bie/nn/models.h"
#include "bie/train/trainer.h"

namespace bie::cli {

struct Session {
  std::shared_ptr<nn::Classifier> model;
  train::TrainResult result;
};

/// config.image and config.classes are taken from the data.
Session train_with_bar(const std::string& label, nn::ModelConfig config, const io::Dataset& data,
                       const train::TrainOptions& options);

}  // namespace bie::cli
