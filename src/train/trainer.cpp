#include "bie/train/trainer.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randperm.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "bie/optim/diode_mix.h"

namespace bie::train {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Parameters in groups with a rate each. A learned binary scale_a drifts under Adam, because the BatchNorm after it
/// makes the loss blind to it: it gets a hundredth of the rate.
std::vector<optim::DiodeMix::Group> parameter_groups(nn::Classifier& model, const TrainOptions& o, std::int64_t steps) {
  std::vector<const void*> scales;
  for (const auto& layer : model.quant_layers())
    if (layer->weight_bits() == 1) scales.push_back(layer->scale_a.unsafeGetTensorImpl());
  const optim::DiodeMixOptions adam{o.lr, 0.9, 0.999};
  // 1/(1-beta2) near a thirtieth of all steps: long enough to average, short enough that weights move.
  const double beta2 = std::clamp(1 - 30.0 / static_cast<double>(steps), 0.9, 0.9995);
  optim::DiodeMix::Group floats{{}, adam}, binary{{}, {o.binary_lr, 0.99, beta2}}, slow{{}, adam};
  slow.options.lr = o.lr * 0.01;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& param = item.value();
    if (item.key().ends_with("qweight")) continue;
    if (param.scalar_type() == at::kChar) {
      if (!o.freeze_binary) binary.params.push_back(param);
    } else if (std::find(scales.begin(), scales.end(), param.unsafeGetTensorImpl()) != scales.end()) {
      slow.params.push_back(param);
    } else {
      floats.params.push_back(param);
    }
  }
  return {floats, binary, slow};
}

void check(const nn::Classifier& model, const io::Dataset& data, const TrainOptions& o) {
  TORCH_CHECK_VALUE(o.epochs > 0 && o.batch > 1, "epochs is ", o.epochs, " and batch ", o.batch,
                    "; at least 1 and 2 are wanted");
  TORCH_CHECK_VALUE(std::isfinite(o.lr) && o.lr > 0 && std::isfinite(o.binary_lr) && o.binary_lr > 0, "lr is ", o.lr,
                    " and the binary one ", o.binary_lr, "; positive numbers are wanted");
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
}

/// The signs of all binary weights, to count flips.
std::vector<at::Tensor> binary_signs(const nn::Classifier& model) {
  std::vector<at::Tensor> signs;
  for (const auto& layer : model.quant_layers())
    if (layer->weight_bits() == 1 && layer->weight.defined()) signs.push_back(layer->weight.detach().lt(0));
  return signs;
}

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

TrainResult fit(nn::Classifier& model, const io::Dataset& data, const TrainOptions& o,
                const std::function<void(const Progress&)>& report) {
  check(model, data, o);
  const Clock::time_point start = Clock::now();
  const std::int64_t count = data.train_images.size(0);
  const std::int64_t batch = std::min(o.batch, count);
  const std::int64_t steps_per_epoch = count / batch, steps = steps_per_epoch * o.epochs;
  model.train();
  for (const auto& layer : model.quant_layers()) layer->prepare_params();
  const std::vector<at::Tensor> signs = binary_signs(model);
  optim::DiodeMix optimizer(parameter_groups(model, o, steps), o.seed);
  std::vector<double> rates;
  for (const auto& group : optimizer.groups()) rates.push_back(group.options.lr);

  at::Generator order = at::detail::createCPUGenerator(o.seed);
  std::int64_t step = 0;
  for (std::int64_t epoch = 0; epoch < o.epochs; ++epoch) {
    const at::Tensor indices = at::randperm(count, order, at::kLong);
    double loss_sum = 0;
    for (std::int64_t i = 0; i < steps_per_epoch; ++i) {
      const at::Tensor chosen = indices.slice(0, i * batch, (i + 1) * batch);
      const double cosine = 0.5 * (1 + std::cos(M_PI * static_cast<double>(step) / static_cast<double>(steps)));
      for (std::size_t g = 0; g < rates.size(); ++g) optimizer.groups()[g].options.lr = rates[g] * cosine;
      optimizer.zero_grad();
      const at::Tensor logits = model.forward(data.train_images.index_select(0, chosen));
      const at::Tensor loss = at::cross_entropy_loss(logits, data.train_labels.index_select(0, chosen));
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
      ++step;
      if (report)
        report({epoch + (i + 1 == steps_per_epoch), o.epochs, step, steps, loss_sum / static_cast<double>(i + 1)});
    }
    TORCH_CHECK(std::isfinite(loss_sum), "training diverged in epoch ", epoch + 1, ": the loss is not finite");
  }
  const double flipped = flipped_share(signs, binary_signs(model));
  const double seconds = seconds_since(start);
  return {accuracy(model, data.test_images, data.test_labels), flipped, seconds};
}

double accuracy(nn::Classifier& model, const at::Tensor& images, const at::Tensor& labels) {
  TORCH_CHECK_VALUE(images.size(0) > 0, "accuracy: there are no images");
  const at::NoGradGuard no_grad;
  model.eval();
  std::int64_t right = 0;
  constexpr std::int64_t batch = 256;
  for (std::int64_t i = 0; i < images.size(0); i += batch) {
    const at::Tensor predicted = model.forward(images.slice(0, i, i + batch)).argmax(1);
    right += predicted.eq(labels.slice(0, i, i + batch)).sum().item<std::int64_t>();
  }
  return static_cast<double>(right) / static_cast<double>(images.size(0));
}

double latency(nn::Classifier& model, const at::Tensor& images, std::int64_t batch, int repeats) {
  TORCH_CHECK_VALUE(images.size(0) > 0 && batch > 0 && repeats > 0, "latency: ", images.size(0), " images, batch ",
                    batch, ", ", repeats, " repeats; positive numbers are wanted");
  const at::NoGradGuard no_grad;
  model.eval();
  const at::Tensor rows = at::arange(batch).remainder_(images.size(0));
  const at::Tensor x = images.index_select(0, rows);
  std::vector<double> times;
  for (int i = 0; i < repeats + 3; ++i) {
    const Clock::time_point start = Clock::now();
    model.forward(x);
    if (i >= 3) times.push_back(seconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace bie::train
