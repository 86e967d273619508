#include "train/checks.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "bie/models/architecture.h"

namespace bie::train {
namespace {

constexpr std::int64_t most_epochs = 10'000'000, most_batch = 1 << 30;

/// Refuses what would do nothing to a model of this kind.
void check_use(const models::Classifier& model, const TrainOptions& o) {
  const models::ModelConfig& c = model.config();
  bool binary = false, signs = false, codes = false, four = false;  // signs and codes: int8 weights that are trained
  for (const auto& layer : model.quant_layers()) {
    const bool one = layer->weight_bits() == 1;
    const bool integer = c.weights == models::WeightForm::integer || (c.weights == models::WeightForm::usual && one);
    binary |= one;
    four |= layer->weight_bits() == 4;
    signs |= one && integer && !o.freeze_binary;
    codes |= !one && integer;
  }
  TORCH_CHECK_VALUE(c.norm || !models::architecture_of(c).deep, c.arch, " does not train without BatchNorm");
  TORCH_CHECK_VALUE(!model.quant_layers().empty() || c.weights != models::WeightForm::integer,
                    "weights is int8, but a model of 32 bits has float weights alone");
  TORCH_CHECK_VALUE(!o.freeze_binary || binary, "freeze_binary wants 1-bit weights, the model has ", c.bits, " bits");
  const auto wants = [&](bool given, const char* option, const char* what, bool has) {
    TORCH_CHECK_VALUE(!given || has, option, " wants ", what, " that are trained, the model has none");
  };
  wants(o.integer_lr.has_value(), "integer_lr", "int8 weights", signs || codes);
  wants(o.wide_gradients, "wide_gradients", "int8 weights", signs || codes);
  wants(o.integer_memory.has_value(), "integer_memory", "1-bit int8 weights", signs);
  wants(o.renew_scale_every > 0, "renew_scale_every", "4-bit weights or int8 weights of 8 bits", four || codes);
}

/// The folder of the checkpoints is there and can be written: before the work, not at its first checkpoint.
void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  TORCH_CHECK_VALUE(std::filesystem::is_directory(path, error) && ::access(path.c_str(), W_OK) == 0, path,
                    ": checkpoints cannot be written there");
}

}  // namespace

void check_options(const models::Classifier& model, const TrainOptions& o) {
  TORCH_CHECK_VALUE(o.epochs > 0 && o.batch.value_or(2) > 1, "epochs and batch: expected at least 1 and 2, got ",
                    o.epochs, " and ", o.batch.value_or(2));
  TORCH_CHECK_VALUE(o.epochs <= most_epochs && o.batch.value_or(2) <= most_batch, "epochs and batch: expected at most ",
                    most_epochs, " and ", most_batch, ", got ", o.epochs, " and ", o.batch.value_or(2));
  const auto positive = [](const char* name, const std::optional<double>& value) {
    TORCH_CHECK_VALUE(!value || (std::isfinite(*value) && *value > 0), name, ": expected a positive number, got ",
                      value.value_or(0));
  };
  positive("lr", o.lr);
  positive("integer_lr", o.integer_lr);
  positive("integer_memory", o.integer_memory);
  TORCH_CHECK_VALUE(!o.weight_decay || (std::isfinite(*o.weight_decay) && *o.weight_decay >= 0),
                    "weight_decay: expected a number >= 0, got ", o.weight_decay.value_or(0));
  TORCH_CHECK_VALUE(o.checkpoint_every >= 0 && o.renew_scale_every >= 0,
                    "checkpoint_every and renew_scale_every: expected numbers >= 0, got ", o.checkpoint_every, " and ",
                    o.renew_scale_every);
  TORCH_CHECK_VALUE(o.patience >= 0, "patience: expected a number of epochs, got ", o.patience);
  recipe_of(model.config(), o).schedule.factor(0, 1);  // refuses a bad warm-up
  check_use(model, o);
}

void check_run(const models::Classifier& model, const data::Dataset& data, const TrainOptions& o, const Task& task) {
  check_options(model, o);
  TORCH_CHECK_VALUE(!o.resume || !o.checkpoints.empty(), "resume wants the folder of the checkpoints");
  for (const auto& layer : model.quant_layers())
    TORCH_CHECK_VALUE(layer->weight.defined(), "the model is packed for evaluation, it has no weights to train");
  const at::IntArrayRef image(model.config().image);
  const auto check_part = [&](const char* part, const at::Tensor& images, const at::Tensor& labels, int least) {
    TORCH_CHECK_VALUE(images.dim() == 4 && images.sizes().slice(1) == image, data.name, ": the ", part, " images are ",
                      images.sizes(), ", the model wants ", image, " each");
    const std::int64_t count = labels.dim() > 0 ? labels.size(0) : 0;
    TORCH_CHECK_VALUE(images.size(0) >= least && count == images.size(0), data.name, ": expected as many ", part,
                      " images as labels, at least ", least, ", got ", images.size(0), " and ", count);
  };
  TORCH_CHECK_VALUE(!data.table || !o.augment.any(), data.name, " is a table, augment is ", name(o.augment),
                    ": columns of numbers are no pixels to move");
  check_part("training", data.train_images, data.train_labels, 2);
  check_part("test", data.test_images, data.test_labels, 1);
  if (data.validation_images.defined()) check_part("validation", data.validation_images, data.validation_labels, 1);
  TORCH_CHECK_VALUE(!o.keep_best || data.validation_images.defined(), data.name,
                    ": keep_best wants validation samples to choose by, no samples were set aside");
  task.check(data, model.config().classes);
  if (!o.checkpoints.empty()) make_folder(o.checkpoints);
}

}  // namespace bie::train
