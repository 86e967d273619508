#include "bie/train/evaluation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "bie/layers/integer_layer.h"
#include "train/loop/batches.h"
#include "train/loop/clock.h"

namespace bie::train {

at::Tensor logits(models::Classifier& model, const at::Tensor& images) {
  TORCH_CHECK_VALUE(images.dim() > 0 && images.size(0) > 0, "logits: there are no images");
  const at::NoGradGuard no_grad;
  const at::Device device = model.parameters().front().device();
  const c10::DeviceGuard guard(device);
  model.eval();
  std::vector<at::Tensor> parts;
  for (std::int64_t i = 0; i < images.size(0); i += evaluation_batch)
    parts.push_back(model.forward(on_device(images.slice(0, i, i + evaluation_batch), device)));
  return at::cat(parts).cpu();
}

namespace {

/// A sentence about images, or about their outputs.
void check_as_many(const Task& task, const at::Tensor& images, const at::Tensor& targets) {
  TORCH_CHECK_VALUE(images.dim() > 0 && images.size(0) > 0, task.metric(), ": there are no images");
  TORCH_CHECK_VALUE(targets.dim() > 0 && targets.size(0) == images.size(0), task.metric(), ": ", images.size(0),
                    " images and ", targets.dim() > 0 ? targets.size(0) : 0, " targets");
}

}  // namespace

double mean_score(const Task& task, const at::Tensor& outputs, const at::Tensor& targets) {
  check_as_many(task, outputs, targets);
  return task.scores(outputs, targets).mean().item<double>();
}

double mean_score(models::Classifier& model, const Task& task, const at::Tensor& images, const at::Tensor& targets) {
  check_as_many(task, images, targets);
  return mean_score(task, logits(model, images), targets);
}

double accuracy(models::Classifier& model, const at::Tensor& images, const at::Tensor& labels) {
  TORCH_CHECK_VALUE(images.dim() > 0 && images.size(0) > 0, "accuracy: there are no images");
  TORCH_CHECK_VALUE(labels.sizes() == images.sizes().slice(0, 1), "accuracy: ", images.size(0), " images and ",
                    labels.numel(), " labels");
  return mean_score(model, classification(), images, labels);
}

namespace {

template <class Function>
at::Tensor in_unit(const at::Tensor& numbers, const Function& function) {
  at::Tensor found = numbers.detach().cpu().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true).contiguous();
  auto* const first = found.mutable_data_ptr<double>();
  std::transform(first, first + found.numel(), first, function);
  return found;
}

}  // namespace

at::Tensor answers(const formats::TableForm& table, const at::Tensor& outputs) {
  return in_unit(outputs, [&](double output) { return table.answer(output); });
}

at::Tensor labels(const formats::TableForm& table, const at::Tensor& targets) {
  return in_unit(targets, [&](double target) { return table.label_of(target); });
}

RegressionErrors regression_errors(const std::optional<formats::TableForm>& table, const at::Tensor& outputs,
                                   const at::Tensor& targets) {
  TORCH_CHECK_VALUE(table && table->regression, "regression_errors: the model is no regression of a table");
  const at::Tensor error = answers(*table, outputs).sub_(labels(*table, targets));
  return {error.abs().mean().item<double>(), std::sqrt(error.square().mean().item<double>())};
}

double latency(models::Classifier& model, const at::Tensor& images, std::int64_t batch, int repeats) {
  TORCH_CHECK_VALUE(images.size(0) > 0 && batch > 0 && repeats > 0,
                    "latency: images, batch and repeats: expected positive numbers, got ", images.size(0), ", ", batch,
                    " and ", repeats);
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

std::map<std::string, double> saturated_shares(models::Classifier& model, const at::Tensor& images) {
  std::map<std::string, const layers::IntegerLayer*> layers;
  for (const models::ProductLayer& product : model.products())
    if (const auto* layer = dynamic_cast<const layers::IntegerLayer*>(product.layer.get()))
      if (layer->activation_bits() > 1) layers[product.name] = layer;
  struct Count {
    std::int64_t beyond = 0, all = 0;
  };
  std::map<std::string, Count> counts;
  model.set_probe([&](const std::string& name, const at::Tensor& x) {
    const auto found = layers.find(name);
    if (found == layers.end()) return;
    const layers::IntegerLayer& layer = *found->second;
    const double least = layer.activation_bits() == 8 ? -128.5 : -8.5,
                 most = layer.activation_bits() == 8 ? 127.5 : 7.5;
    const at::Tensor bias = x.dim() == 4 ? layer.bias_a.view({1, -1, 1, 1}) : layer.bias_a;
    const at::Tensor codes = (x + bias) / layer.scale_a;
    counts[name].beyond += codes.lt(least).logical_or_(codes.gt(most)).sum().item<std::int64_t>();
    counts[name].all += x.numel();
  });
  logits(model, images);
  model.set_probe({});
  std::map<std::string, double> shares;
  for (const auto& [name, count] : counts)
    shares[name] = static_cast<double>(count.beyond) / static_cast<double>(count.all);
  return shares;
}

}  // namespace bie::train
