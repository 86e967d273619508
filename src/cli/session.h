// What the commands share: a model made from a seed, trained with a progress bar, and options of the same name.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
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

/// config.image and config.classes are taken from the data. `configure` sets the new model's layers up; `started` sees
/// the model once nothing is refused any more, before its first step. Either may be empty.
Session train_with_bar(const std::string& label, nn::ModelConfig config, const io::Dataset& data,
                       const train::TrainOptions& options, const std::function<void(nn::Classifier&)>& configure = {},
                       const std::function<void(nn::Classifier&)>& started = {});

/// --seed of train and demo.
CLI::Option* add_seed(CLI::App& command, std::uint64_t& seed, const char* what);
/// --data of train and eval, --device of these and demo.
void add_data(CLI::App& command, std::string& data);
void add_device(CLI::App& command, std::string& device);

}  // namespace bie::cli
