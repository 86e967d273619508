// The options of `bie train`.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bie/models/classifier.h"
#include "bie/models/model_file.h"
#include "bie/train/trainer.h"

namespace bie::cli {

inline constexpr int most_folds = 20;

struct TrainArguments {
  std::string data = "digits", out, logits, device = "cpu", run, net, from;
  data::DataOptions table;
  models::ModelConfig config;
  train::TrainOptions options;
  layers::StepSizeGuard guard;
  layers::Compat compat = layers::Compat::none;
  ops::GradMode gradients = ops::GradMode::exact;
  models::SavedForm form = models::SavedForm::packed;
  bool layers = false, dry_run = false;
  int folds = 0;                               ///< of cross-validation; 0: none
  std::shared_ptr<models::Classifier> source;  ///< the model of --from

  // As they are given; `resolve` puts what they mean into the fields above.
  struct Words {
    std::string weights = "usual", optimizer = "diodemix", gradients, compat = "none", schedule, augment = "none",
                class_weights = "none", precision = "float32";
    std::vector<std::string> bits_of;
    std::optional<int> first, last;
    std::optional<std::int64_t> hidden;
    bool sized = false;  // --hidden or --width of an mlp is given
    bool no_norm = false, bfloat16_moments = false, training_form = false;
    const CLI::Option *arch = nullptr, *augment_option = nullptr, *bits = nullptr, *epochs = nullptr, *lr = nullptr,
                      *patience = nullptr, *step_floor = nullptr;
  } words;
};

void add_options(CLI::App& command, TrainArguments& arguments);

/// Throws a ValueError for a word that means nothing and for options that contradict each other. A
/// CLI::ValidationError, here and below, for an option that would do nothing.
void resolve(TrainArguments& arguments);
/// Reads "train ..." as the command does and refuses what it refuses before it reads the data.
/// @param what  is named by the sentence.
void check_train_words(const std::vector<std::string>& words, const std::string& what);
/// Fills unset arguments with values that fit the data.
void use_data(TrainArguments& arguments, const data::Dataset& data);
void check_use(const TrainArguments& arguments, const models::Classifier& model);

/// --bits-of NAME=BITS, --first and --last of train and quantize as ModelConfig::bits_of. The sizes of the
/// configuration are known by then. A CLI::ValidationError where two options speak of one layer.
void set_layer_bits(models::ModelConfig& config, const std::vector<std::string>& bits_of, std::optional<int> first,
                    std::optional<int> last);

}  // namespace bie::cli
