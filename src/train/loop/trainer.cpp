#include "bie/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "bie/layers/nbit_layer.h"
#include "bie/layers/state_dict.h"
#include "bie/train/evaluation.h"
#include "data/value_errors.h"
#include "formats/folder_lock.h"
#include "train/checks.h"
#include "train/loop/batches.h"
#include "train/loop/clock.h"
#include "train/loop/layer_watch.h"
#include "train/loop/optimizers.h"
#include "train/runs/run_checkpoints.h"

namespace bie::train {
Recipe recipe_of(const models::ModelConfig& config, const TrainOptions& o) {
  Recipe recipe = default_recipe(config, o.optimizer);
  recipe.lr = o.lr.value_or(recipe.lr);
  recipe.weight_decay = o.weight_decay.value_or(recipe.weight_decay);
  recipe.integer_lr = o.integer_lr.value_or(recipe.integer_lr);
  recipe.integer_memory = o.integer_memory.value_or(recipe.integer_memory);
  recipe.schedule.kind = o.schedule.value_or(recipe.schedule.kind);
  recipe.schedule.warmup = o.warmup.value_or(recipe.schedule.warmup);
  return recipe;
}

TrainResult fit(models::Classifier& model, const data::Dataset& data, const TrainOptions& o, const Listener& listener,
                const Task& task) {
  check_run(model, data, o, task);
  std::optional<formats::FolderLock> lock;
  if (!o.checkpoints.empty()) data::with_value_errors([&] { lock.emplace("folder of checkpoints", o.checkpoints); });
  const Clock::time_point start = Clock::now();
  const std::int64_t images = data.train_images.size(0);
  const std::int64_t batch = std::min(o.batch.value_or(default_batch(images)), images);
  const std::int64_t per_epoch = images / batch, steps = per_epoch * o.epochs;
  const Recipe recipe = recipe_of(model.config(), o);
  recipe.schedule.factor(0, steps);  // refuses a bad warm-up
  const c10::DeviceGuard device(o.device);
  model.to(c10::kCPU);  // prepared and resumed there, a run starts from the same bits wherever it trains
  model.train();
  for (const auto& layer : model.quant_layers())  // always: an earlier run may have frozen them
    if (layer->weight_bits() == 1) layer->set_weight_trainable(!o.freeze_binary);
  layers::prepare_layers(model);
  const Signs signs(model);
  Optimizers optimizers(model, o, recipe, steps);
  const RunCheckpoints checkpoints(model, optimizers, data, o, recipe);
  auto [first, history] = checkpoints.resume(listener.note);
  model.to(o.device);
  if (listener.past) listener.past(history);
  if (listener.started) listener.started();
  if (o.device.is_cuda()) {
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
  }

  Batches batches(data, o.device, batch, o.augment, o.seed);
  // A GPU's loss is looked at now and then: each look waits until the GPU has caught up.
  const std::int64_t look_every = o.device.is_cuda() ? 20 : 1;
  const at::Tensor loss_sum = at::zeros({}, at::TensorOptions(o.device).dtype(at::kDouble));
  const at::Tensor score_sum = at::zeros({}, at::TensorOptions(o.device).dtype(at::kDouble));
  const bool watched = listener.epoch || o.patience > 0;
  std::int64_t step = first, summed = 0;
  const Clock::time_point first_step = Clock::now();
  Clock::time_point epoch_start = first_step;
  bool interrupted = false;
  while (step < steps && !interrupted && !out_of_patience(history, o.patience)) {
    const std::int64_t epoch = step / per_epoch;
    if (step % per_epoch == 0) {
      loss_sum.zero_();
      score_sum.zero_();
      summed = 0;
    }
    const Batches::Batch chosen = batches.batch(step);
    optimizers.zero_grad();
    at::Tensor outputs;
    try {
      outputs = model.forward(chosen.images);
    } catch (const c10::ValueError& error) {  // quantised layers refuse NaN and infinity
      TORCH_CHECK(step == first, "training diverged in epoch ", epoch + 1, ": ", error.what_without_backtrace());
      throw;
    }
    const at::Tensor loss = task.loss(outputs, chosen.labels);
    loss_sum.add_(loss.detach());
    if (watched) score_sum.add_(task.scores(outputs.detach(), chosen.labels).sum());
    ++summed;
    ++step;
    const bool epoch_ends = step % per_epoch == 0, look = epoch_ends || step % look_every == 0;
    const double mean_loss = look ? loss_sum.item<double>() / static_cast<double>(summed) : 0;
    TORCH_CHECK(std::isfinite(mean_loss), "training diverged in epoch ", epoch + 1, ": the loss is not finite");
    loss.backward();
    const double factor = recipe.schedule.factor(step - 1, steps);
    optimizers.step(factor);
    if (o.renew_scale_every > 0 && step % o.renew_scale_every == 0) layers::renew_weight_scales(model);
    if (look && listener.progress)
      listener.progress(
          {epoch + epoch_ends, o.epochs, step, steps, mean_loss, step - first, seconds_since(first_step)});
    if (epoch_ends && watched) {
      Epoch ended{epoch + 1, step, mean_loss, mean_score(model, task, data.test_images, data.test_labels),
                  recipe.lr * factor};
      model.train();
      ended.step_sizes = step_sizes(model);
      ended.flipped = signs.flipped(model);
      ended.train_score = score_sum.item<double>() / static_cast<double>(summed * batch);
      if (optimizers.moves_integers()) ended.integer_rate = recipe.integer_lr * factor;
      ended.seconds = seconds_since(epoch_start);
      history.push_back(std::move(ended));
      if (listener.epoch) listener.epoch(history.back());
      epoch_start = Clock::now();
    }
    interrupted = step < steps && listener.stop && listener.stop();
    const bool due = o.checkpoint_every > 0 ? step % o.checkpoint_every == 0 : epoch_ends;
    if (!o.checkpoints.empty() && (due || interrupted)) checkpoints.save(step, epoch, history);
  }
  optimizers.zero_grad();
  check_finite(layers::state_dict(model, /*packed=*/false), o.epochs - 1);
  TrainResult result{std::numeric_limits<double>::quiet_NaN(),
                     signs.flipped_share(model),
                     seconds_since(start),
                     optimizers.state_bytes(),
                     interrupted ? End::interrupted : End::finished,
                     step,
                     std::move(history)};
  if (interrupted) return result;
  if (step < steps) result.end = End::patience;
  result.test_score = mean_score(model, task, data.test_images, data.test_labels);
  return result;
}

}  // namespace bie::train
