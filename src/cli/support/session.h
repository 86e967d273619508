// Shared by the commands: a model made from a seed, training with a progress bar, and options of the same name.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bie/data/dataset.h"
#include "bie/models/classifier.h"
#include "bie/train/trainer.h"
#include "cli/support/result.h"

namespace bie::cli {

struct Session {
  std::shared_ptr<models::Classifier> model;
  std::shared_ptr<const train::Task> task;
  train::TrainResult result;
};

/// Hooks of a command into a training; each may be empty.
struct SessionHooks {
  std::function<void(models::Classifier&)> configure = {};  ///< sets the new model's layers up
  /// Sees the model and the epochs of a resumed run once nothing is refused any more, before its next step.
  std::function<void(models::Classifier&, const std::vector<train::Epoch>&)> started = {};
  std::function<void(const train::Epoch&)> epoch = {};  ///< after each epoch, which is then logged too
};

/// The configuration with the image sizes and the classes of the data.
models::ModelConfig fitted(models::ModelConfig config, const data::Dataset& data);

/// "accuracy 98.33 %", "R2 0.8312".
std::string score_text(const train::Task& task, double score);

/// Scores of the test samples' outputs. Adds what accuracy hides where a class has 1.5 times its share, and for a
/// regression its errors in the table's unit: "R2 0.8312, mean error 2.1, root mean square 3.0 (price)".
std::string scores_text(const train::Task& task, const at::Tensor& outputs, const data::Dataset& data);
/// "test_accuracy", "balanced_accuracy", "auc" and "majority", or "r2", "mae" and "rmse" with the "label" that they are
/// of.
Json score_json(const train::Task& task, const at::Tensor& outputs, const data::Dataset& data);

/// A new model of the configuration fitted to the data, trained. Ctrl-C ends the training with what
/// train::fit does for an interrupted run.
Session train_with_bar(const std::string& label, const models::ModelConfig& config, const data::Dataset& data,
                       const train::TrainOptions& options, const SessionHooks& hooks = {});

/// An option that takes the name of a file or a folder: an empty one, as of a shell's variable that is not set, is
/// refused.
CLI::Option* takes_file(CLI::Option* option);
CLI::Option* takes_folder(CLI::Option* option);

/// --seed of train and demo.
CLI::Option* add_seed(CLI::App& command, std::uint64_t& seed, const char* what);
/// --data of the commands that read a data set, --device of those that run a model.
CLI::Option* add_data(CLI::App& command, std::string& data);
void add_device(CLI::App& command, std::string& device);

/// The options of a command that trains on tables or pictures, and of one that asks a model about tables.
void add_table_options(CLI::App& command, data::DataOptions& options);
void add_picture_options(CLI::App& command, data::DataOptions& options);
void add_asked_table_options(CLI::App& command, data::DataOptions& options);
/// Sets the options that depend on a model: how it reads a table or pictures. `spec` is empty for single files.
void use_form(data::DataOptions& options, const std::string& spec, const models::ModelConfig& config);

/// How many training images step sizes are taken from.
inline constexpr std::int64_t calibration_count = 512;
/// Evenly spaced training images, as floats: files may hold one class after the other.
at::Tensor calibration_images(const data::Dataset& data, std::int64_t count);

/// Logs the data set's notes.
void tell_notes(const data::Dataset& data);

/// Throws a ValueError unless images of the data are what the model takes, and their classes its classes.
void check_fit(const models::ModelConfig& config, const std::string& path, const data::Dataset& data);

}  // namespace bie::cli
