#include "bie/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bie/io/checksum.h"
#include "bie/nn/model_file.h"
#include "bie/nn/nbit_layer.h"
#include "bie/nn/state_dict.h"
#include "bie/train/checkpoint.h"
#include "nn/finite.h"
#include "train/batches.h"
#include "train/optimizers.h"

namespace bie::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::int64_t steps_per_epoch(const io::Dataset& data, const TrainOptions& o) {
  const std::int64_t count = data.train_images.size(0);
  return count / std::min(o.batch, count);
}

/// Refuses what would do nothing to a model of this kind.
void check_use(const nn::Classifier& model, const TrainOptions& o) {
  const nn::ModelConfig& c = model.config();
  bool binary = false, signs = false, codes = false, four = false;  // signs and codes: int8 weights that are trained
  for (const auto& layer : model.quant_layers()) {
    const bool one = layer->weight_bits() == 1;
    const bool integer = c.weights == nn::WeightForm::integer || (c.weights == nn::WeightForm::usual && one);
    binary |= one;
    four |= layer->weight_bits() == 4;
    signs |= one && integer && !o.freeze_binary;
    codes |= !one && integer;
  }
  TORCH_CHECK_VALUE(!model.quant_layers().empty() || c.weights != nn::WeightForm::integer,
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

void check(const nn::Classifier& model, const io::Dataset& data, const TrainOptions& o) {
  TORCH_CHECK_VALUE(o.epochs > 0 && o.batch > 1, "epochs is ", o.epochs, " and batch ", o.batch,
                    "; at least 1 and 2 are wanted");
  const auto positive = [](const char* name, const std::optional<double>& value) {
    TORCH_CHECK_VALUE(!value || (std::isfinite(*value) && *value > 0), name, " is ", value.value_or(0),
                      ", a positive number is wanted");
  };
  positive("lr", o.lr);
  positive("integer_lr", o.integer_lr);
  positive("integer_memory", o.integer_memory);
  TORCH_CHECK_VALUE(!o.weight_decay || (std::isfinite(*o.weight_decay) && *o.weight_decay >= 0), "weight_decay is ",
                    o.weight_decay.value_or(0), ", a number >= 0 is wanted");
  TORCH_CHECK_VALUE(o.checkpoint_every >= 0 && o.renew_scale_every >= 0, "checkpoint_every is ", o.checkpoint_every,
                    " and renew_scale_every ", o.renew_scale_every, "; numbers >= 0 are wanted");
  TORCH_CHECK_VALUE(!o.resume || !o.checkpoints.empty(), "resume wants the folder of the checkpoints");
  check_use(model, o);
  for (const auto& layer : model.quant_layers())
    TORCH_CHECK_VALUE(layer->weight.defined(), "the model is packed for evaluation, it has no weights to train");
  const at::IntArrayRef image(model.config().image);
  const auto check_part = [&](const char* part, const at::Tensor& images, const at::Tensor& labels, int least) {
    TORCH_CHECK_VALUE(images.dim() == 4 && images.sizes().slice(1) == image, data.name, ": the ", part, " images are ",
                      images.sizes(), ", the model wants ", image, " each");
    TORCH_CHECK_VALUE(images.size(0) >= least && labels.numel() == images.size(0), data.name, ": ", images.size(0), " ",
                      part, " images and ", labels.numel(), " labels; as many of both, at least ", least,
                      ", are wanted");
  };
  check_part("training", data.train_images, data.train_labels, 2);
  check_part("test", data.test_images, data.test_labels, 1);
  TORCH_CHECK_VALUE(data.classes <= model.config().classes, data.name, ": ", data.classes, " classes, the model has ",
                    model.config().classes);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / steps_per_epoch(data, o);
  TORCH_CHECK_VALUE(o.epochs <= most, "epochs is ", o.epochs, ", at most ", most, " are wanted: steps are counted");
  if (o.checkpoints.empty()) return;
  std::error_code error;  // before the work, not at its first checkpoint
  std::filesystem::create_directories(o.checkpoints, error);
  TORCH_CHECK_VALUE(std::filesystem::is_directory(o.checkpoints, error) && ::access(o.checkpoints.c_str(), W_OK) == 0,
                    o.checkpoints, ": checkpoints cannot be written there");
}

/// The signs of all binary weights, to count flips.
std::vector<at::Tensor> binary_signs(const nn::Classifier& model) {
  std::vector<at::Tensor> signs;
  for (const auto& layer : model.quant_layers())
    if (layer->weight_bits() == 1 && layer->weight.defined()) signs.push_back(layer->weight.detach().lt(0).cpu());
  return signs;
}

Recipe recipe_of(const nn::Classifier& model, const TrainOptions& o) {
  Recipe recipe = default_recipe(model.config(), o.optimizer);
  recipe.lr = o.lr.value_or(recipe.lr);
  recipe.weight_decay = o.weight_decay.value_or(recipe.weight_decay);
  recipe.integer_lr = o.integer_lr.value_or(recipe.integer_lr);
  recipe.integer_memory = o.integer_memory.value_or(recipe.integer_memory);
  recipe.schedule.kind = o.schedule.value_or(recipe.schedule.kind);
  recipe.schedule.warmup = o.warmup.value_or(recipe.schedule.warmup);
  return recipe;
}

/// What has to be the same for a run to go on.
std::string run_json(const nn::Classifier& model, const io::Dataset& data, const TrainOptions& o, const Recipe& r) {
  nlohmann::json layers = nlohmann::json::array();
  for (const auto& layer : model.quant_layers()) {
    std::ostringstream text;  // form of the weight, gradients and compat
    text << *layer << ", step floor " << layer->step_size_guard().floor;
    layers.push_back(text.str());
  }
  const nlohmann::json json = {{"model", nlohmann::json::parse(nn::config_json(model.config()))},
                               {"layers", layers},
                               {"data", c10::str(data.name, " ", data.train_images.sizes(), ", labels of CRC-32 ",
                                                 io::checksum({{"labels", data.train_labels}}, ""))},
                               {"epochs", o.epochs},
                               {"batch", o.batch},
                               {"augment", name(o.augment)},
                               {"optimizer", name(o.optimizer)},
                               {"lr", r.lr},
                               {"weight_decay", r.weight_decay},
                               {"integer_lr", r.integer_lr},
                               {"integer_memory", r.integer_memory},
                               {"schedule", optim::name(r.schedule.kind)},
                               {"warmup", r.schedule.warmup},
                               {"freeze_binary", o.freeze_binary},
                               {"wide_gradients", o.wide_gradients},
                               {"renew_scale_every", o.renew_scale_every},
                               {"moments", o.moments == optim::MomentType::float32 ? "float32" : "bfloat16"},
                               {"seed", o.seed}};
  return json.dump();
}

/// The first of these entries in which two JSON objects differ.
std::string difference(const nlohmann::json& ours, const nlohmann::json& theirs) {
  for (const auto& [key, value] : ours.items())
    if (!theirs.contains(key) || theirs[key] != value)
      return c10::str(key, " is ", value.dump(), ", the checkpoint's is ",
                      theirs.contains(key) ? theirs[key].dump() : "missing");
  return {};
}

/// The first entry in which two runs differ; first of all the model's and the optimizer, which others follow from.
std::string run_difference(const nlohmann::json& ours, const nlohmann::json& theirs) {
  const nlohmann::json optimizer = {{"optimizer", ours["optimizer"]}};
  std::string differs = difference(ours["model"], theirs.value("model", nlohmann::json()));
  if (differs.empty()) differs = difference(optimizer, theirs);
  return differs.empty() ? difference(ours, theirs) : differs;
}

/// A diverged run must not take the place of its good checkpoints, nor end as if it had been trained.
void check_finite(const nn::StateDict& tensors, std::int64_t epoch) {
  for (const auto& [name, tensor] : tensors)
    TORCH_CHECK(!at::isFloatingType(tensor.scalar_type()) || nn::is_finite(tensor), "training diverged in epoch ",
                epoch + 1, ": ", name, " is not finite");
}

/// A run's way to and from its checkpoints.
struct Run {
  nn::Classifier& model;
  Optimizers& optimizers;
  const TrainOptions& options;
  std::string json;

  void save(std::int64_t step, std::int64_t epoch) const {
    Checkpoint checkpoint{step, json, {}};
    for (const auto& [name, tensor] : nn::state_dict(model, /*packed=*/false))
      checkpoint.tensors["model." + name] = tensor;
    for (const auto& [name, tensor] : optimizers.state()) checkpoint.tensors["optimizer." + name] = tensor;
    for (const auto& [name, layer] : nn::quant_layers(model))
      checkpoint.tensors["guard." + name] = at::full({}, layer->guarded_scale());
    check_finite(checkpoint.tensors, epoch);
    for (auto& [name, tensor] : checkpoint.tensors) tensor = tensor.cpu();
    save_checkpoint(options.checkpoints, checkpoint);
  }

  /// Steps done; 0 where the run starts from the beginning.
  std::int64_t resume(const std::function<void(const std::string&)>& note) const {
    if (!options.resume) {
      TORCH_CHECK_VALUE(options.checkpoints.empty() || !has_checkpoints(options.checkpoints), options.checkpoints,
                        " holds the checkpoints of a run; go on from them with resume, or name another folder");
      return 0;
    }
    const std::optional<Checkpoint> checkpoint = newest_checkpoint(options.checkpoints, note);
    if (!checkpoint) {
      if (note) note(options.checkpoints + " holds no checkpoint yet: training starts from the beginning");
      return 0;
    }
    const std::string differs = run_difference(nlohmann::json::parse(json), nlohmann::json::parse(checkpoint->run));
    TORCH_CHECK_VALUE(differs.empty(), options.checkpoints, ": a checkpoint of another run: ", differs);
    nn::StateDict parts[3];
    const char* const prefixes[] = {"model.", "optimizer.", "guard."};
    for (const auto& [name, tensor] : checkpoint->tensors)
      for (std::size_t i = 0; i < 3; ++i)
        if (name.starts_with(prefixes[i])) parts[i][name.substr(std::strlen(prefixes[i]))] = tensor;
    nn::load_state_dict(model, parts[0]);
    model.to(options.device);  // the optimizer's moments follow
    optimizers.load_state(parts[1]);
    for (const auto& [name, layer] : nn::quant_layers(model))
      if (const auto found = parts[2].find(name); found != parts[2].end())
        layer->set_guarded_scale(found->second.item<float>());
    if (note) note(c10::str("resumed after step ", checkpoint->step));
    return checkpoint->step;
  }
};

double flipped_share(const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& after) {
  if (before.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::int64_t flipped = 0, all = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    flipped += before[i].ne(after[i]).sum().item<std::int64_t>();
    all += before[i].numel();
  }
  return static_cast<double>(flipped) / static_cast<double>(all);
}

}  // namespace

TrainResult fit(nn::Classifier& model, const io::Dataset& data, const TrainOptions& o, const Listener& listener) {
  check(model, data, o);
  const Clock::time_point start = Clock::now();
  const std::int64_t batch = std::min(o.batch, data.train_images.size(0));
  const std::int64_t per_epoch = steps_per_epoch(data, o), steps = per_epoch * o.epochs;
  const Recipe recipe = recipe_of(model, o);
  recipe.schedule.factor(0, steps);  // refuses a bad warm-up
  const c10::DeviceGuard device(o.device);
  model.to(c10::kCPU);  // prepared and resumed there, a run starts from the same bits wherever it trains
  model.train();
  for (const auto& layer : model.quant_layers())  // always: an earlier run may have frozen them
    if (layer->weight_bits() == 1) layer->set_weight_trainable(!o.freeze_binary);
  nn::prepare_layers(model);
  const std::vector<at::Tensor> signs = binary_signs(model);
  Optimizers optimizers(model, o, recipe, steps);
  Run run{model, optimizers, o, run_json(model, data, o, recipe)};
  const std::int64_t first = run.resume(listener.note);
  model.to(o.device);
  if (listener.started) listener.started();
  if (o.device.is_cuda()) {
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
  }

  Batches batches(data, o.device, batch, o.augment, o.seed);
  // A GPU's loss is looked at now and then: each look waits until the GPU has caught up.
  const std::int64_t look_every = o.device.is_cuda() ? 20 : 1;
  const at::Tensor loss_sum = at::zeros({}, at::TensorOptions(o.device).dtype(at::kDouble));
  std::int64_t step = first, summed = 0;
  while (step < steps) {
    const std::int64_t epoch = step / per_epoch;
    if (step % per_epoch == 0) {
      loss_sum.zero_();
      summed = 0;
    }
    const auto [images, labels] = batches.batch(step);
    optimizers.zero_grad();
    at::Tensor outputs;
    try {
      outputs = model.forward(images);
    } catch (const c10::ValueError& error) {  // quantised layers refuse NaN and infinity
      TORCH_CHECK(step == first, "training diverged in epoch ", epoch + 1, ": ", error.what_without_backtrace());
      throw;
    }
    const at::Tensor loss = at::cross_entropy_loss(outputs, labels);
    loss_sum.add_(loss.detach());
    ++summed;
    ++step;
    const bool epoch_ends = step % per_epoch == 0, look = epoch_ends || step % look_every == 0;
    const double mean_loss = look ? loss_sum.item<double>() / static_cast<double>(summed) : 0;
    TORCH_CHECK(std::isfinite(mean_loss), "training diverged in epoch ", epoch + 1, ": the loss is not finite");
    loss.backward();
    optimizers.step(recipe.schedule.factor(step - 1, steps));
    if (o.renew_scale_every > 0 && step % o.renew_scale_every == 0) nn::renew_weight_scales(model);
    if (look && listener.progress) listener.progress({epoch + epoch_ends, o.epochs, step, steps, mean_loss});
    if (!o.checkpoints.empty() && (o.checkpoint_every > 0 ? step % o.checkpoint_every == 0 : epoch_ends))
      run.save(step, epoch);
  }
  optimizers.zero_grad();
  check_finite(nn::state_dict(model, /*packed=*/false), o.epochs - 1);
  const double flipped = flipped_share(signs, binary_signs(model));
  const double seconds = seconds_since(start);
  return {accuracy(model, data.test_images, data.test_labels), flipped, seconds, optimizers.state_bytes()};
}

at::Tensor logits(nn::Classifier& model, const at::Tensor& images) {
  TORCH_CHECK_VALUE(images.dim() > 0 && images.size(0) > 0, "logits: there are no images");
  const at::NoGradGuard no_grad;
  const at::Device device = model.parameters().front().device();
  const c10::DeviceGuard guard(device);
  model.eval();
  std::vector<at::Tensor> parts;
  constexpr std::int64_t batch = 256;
  for (std::int64_t i = 0; i < images.size(0); i += batch)
    parts.push_back(model.forward(on_device(images.slice(0, i, i + batch), device)));
  return at::cat(parts).cpu();
}

double accuracy(nn::Classifier& model, const at::Tensor& images, const at::Tensor& labels) {
  TORCH_CHECK_VALUE(images.dim() > 0 && images.size(0) > 0, "accuracy: there are no images");
  TORCH_CHECK_VALUE(labels.sizes() == images.sizes().slice(0, 1), "accuracy: ", images.size(0), " images and ",
                    labels.numel(), " labels");
  const std::int64_t right = logits(model, images).argmax(1).eq(labels).sum().item<std::int64_t>();
  return static_cast<double>(right) / static_cast<double>(images.size(0));
}

double latency(nn::Classifier& model, const at::Tensor& images, std::int64_t batch, int repeats) {
  TORCH_CHECK_VALUE(images.size(0) > 0 && batch > 0 && repeats > 0, "latency: ", images.size(0), " images, batch ",
                    batch, ", ", repeats, " repeats; positive numbers are wanted");
  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor rows = at::arange(batch).remainder_(images.size(0));
  const at::Device device = model.parameters().front().device();
  const c10::DeviceGuard guard(device);
  const at::Tensor x = on_device(images.index_select(0, rows), device);
  std::vector<double> times;
  for (int i = 0; i < repeats + 3; ++i) {
    const Clock::time_point start = Clock::now();
    model.forward(x);
    if (device.is_cuda()) c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(device).synchronize();
    if (i >= 3) times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace bie::train
