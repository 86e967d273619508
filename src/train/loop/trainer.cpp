#include "bie/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/ops/full.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>

#include "bie/layers/nbit_layer.h"
#include "bie/layers/state_dict.h"
#include "bie/train/evaluation.h"
#include "data/value_errors.h"
#include "formats/folder_lock.h"
#include "train/checks.h"
#include "train/loop/autocast.h"
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

namespace {

/// Sums over the steps of an epoch, on the device.
class EpochSums {
 public:
  EpochSums(at::Device device, const EpochPart& part)
      : loss_(at::full({}, part.loss_sum, at::TensorOptions(device).dtype(at::kDouble))),
        score_(at::full({}, part.score_sum, at::TensorOptions(device).dtype(at::kDouble))),
        steps_(part.steps),
        seconds_(part.seconds) {}

  void add_loss(const at::Tensor& loss) {
    loss_.add_(loss.detach());
    ++steps_;
  }
  void add_scores(const at::Tensor& scores) { score_.add_(scores.sum()); }
  double mean_loss() const { return loss_.item<double>() / static_cast<double>(steps_); }
  double mean_score(std::int64_t batch) const { return score_.item<double>() / static_cast<double>(steps_ * batch); }
  double seconds() const { return seconds_ + seconds_since(start_); }
  EpochPart part() const { return {steps_, loss_.item<double>(), score_.item<double>(), seconds()}; }

 private:
  at::Tensor loss_, score_;
  std::int64_t steps_;
  double seconds_;
  Clock::time_point start_ = Clock::now();
};

/// A copy that later steps leave alone.
layers::StateDict copy_of_state(models::Classifier& model) {
  layers::StateDict copy = layers::state_dict(model, /*packed=*/false);
  for (auto& [name, tensor] : copy) tensor = tensor.detach().cpu().clone();
  return copy;
}

}  // namespace

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
  const c10::DeviceGuard device(o.device);
  model.to(c10::kCPU);  // prepared and resumed there, a run starts from the same bits wherever it trains
  model.train();
  for (const auto& layer : model.quant_layers())  // always: an earlier run may have frozen them
    if (layer->weight_bits() == 1) layer->set_weight_trainable(!o.freeze_binary);
  layers::prepare_layers(model);
  const Signs signs(model);
  Optimizers optimizers(model, o, recipe, steps);
  const RunCheckpoints checkpoints(model, optimizers, data, o, recipe);
  RunCheckpoints::Past past = checkpoints.resume(listener.note);
  std::vector<Epoch>& history = past.history;
  const std::int64_t first = past.step;
  const double earlier = past.seconds;
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
  const bool watched = listener.epoch || o.patience > 0 || o.keep_best;
  std::int64_t& step = past.step;
  const Clock::time_point first_step = Clock::now();
  EpochSums sums(o.device, past.part);
  bool interrupted = false;
  at::Tensor test_outputs;  // of the last epoch
  while (step < steps && !interrupted && !out_of_patience(history, o.patience)) {
    const std::int64_t epoch = step / per_epoch;
    if (step % per_epoch == 0) sums = EpochSums(o.device, {});
    const Batches::Batch chosen = batches.batch(step);
    optimizers.zero_grad();
    at::Tensor outputs;
    try {
      const Autocast autocast(o.device.type(), o.bfloat16);
      outputs = model.forward(chosen.images).to(at::kFloat);
    } catch (const c10::ValueError& error) {  // quantised layers refuse NaN and infinity
      TORCH_CHECK(step == first, "training diverged in epoch ", epoch + 1, ": ", error.what_without_backtrace());
      throw;
    }
    const at::Tensor loss = task.loss(outputs, chosen.labels);
    sums.add_loss(loss);
    if (watched) sums.add_scores(task.scores(outputs.detach(), chosen.labels));
    ++step;
    const bool epoch_ends = step % per_epoch == 0, look = epoch_ends || step % look_every == 0;
    const double mean_loss = look ? sums.mean_loss() : 0;
    TORCH_CHECK(std::isfinite(mean_loss), "training diverged in epoch ", epoch + 1, ": the loss is not finite");
    loss.backward();
    const double factor = recipe.schedule.factor(step - 1, steps);
    optimizers.step(factor);
    if (o.renew_scale_every > 0 && step % o.renew_scale_every == 0) layers::renew_weight_scales(model);
    if (look && listener.progress)
      listener.progress(
          {epoch + epoch_ends, o.epochs, step, steps, mean_loss, step - first, seconds_since(first_step)});
    if (epoch_ends && watched) {
      test_outputs = logits(model, data.test_images);
      Epoch ended{epoch + 1, step, mean_loss, mean_score(task, test_outputs, data.test_labels), recipe.lr * factor};
      if (data.validation_images.defined())
        ended.validation_score = mean_score(model, task, data.validation_images, data.validation_labels);
      model.train();
      ended.step_sizes = step_sizes(model);
      ended.flipped = signs.flipped(model);
      ended.train_score = sums.mean_score(batch);
      if (optimizers.moves_integers()) ended.integer_rate = recipe.integer_lr * factor;
      ended.seconds = sums.seconds();
      history.push_back(std::move(ended));
      if (o.keep_best && best_epoch(history) + 1 == std::ssize(history)) past.best = copy_of_state(model);
      if (listener.epoch) listener.epoch(history.back());
    }
    interrupted = step < steps && listener.stop && listener.stop();
    const bool due = o.checkpoint_every > 0 ? step % o.checkpoint_every == 0 : epoch_ends;
    if (!o.checkpoints.empty() && (due || interrupted)) {
      past.part = epoch_ends ? EpochPart() : sums.part();
      past.seconds = earlier + seconds_since(start);
      checkpoints.save(past, epoch);
    }
  }
  optimizers.zero_grad();
  check_finite(layers::state_dict(model, /*packed=*/false), o.epochs - 1);
  if (!interrupted && !past.best.empty()) {
    model.to(c10::kCPU);
    layers::load_state_dict(model, past.best);
    model.to(o.device);
    test_outputs.reset();
  }
  TrainResult result{std::numeric_limits<double>::quiet_NaN(),
                     signs.flipped_share(model),
                     earlier + seconds_since(start),
                     optimizers.state_bytes(),
                     interrupted ? End::interrupted : End::finished,
                     step,
                     std::move(history)};
  if (interrupted) return result;
  if (step < steps) result.end = End::patience;
  model.eval();
  result.test_outputs = test_outputs.defined() ? test_outputs : logits(model, data.test_images);
  result.test_score = mean_score(task, result.test_outputs, data.test_labels);
  return result;
}

}  // namespace bie::train
