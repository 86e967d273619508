#include "bie/train/task.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/mse_loss.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <utility>
#include <vector>

#include "bie/train/evaluation.h"
#include "layers/finite.h"

namespace bie::train {
namespace {

/// The labels or targets of training, testing and, where samples were set aside, validation.
std::vector<at::Tensor> parts_of(const data::Dataset& data) {
  std::vector<at::Tensor> parts{data.train_labels, data.test_labels};
  if (data.validation_images.defined()) parts.push_back(data.validation_labels);
  return parts;
}

void check_targets(const data::Dataset& data) {
  for (const at::Tensor& targets : parts_of(data)) {
    TORCH_CHECK_VALUE(targets.defined() && targets.dim() == 2 && targets.scalar_type() == at::kFloat, data.name,
                      ": the targets: expected float32 [n, k], got ", targets.sizes(), " of ", targets.scalar_type());
    layers::finite(targets, data.name + ": a target");
  }
}

class Classification : public Task {
 public:
  /// @param weights  of the classes, float32 [classes]; undefined: all weigh one
  explicit Classification(at::Tensor weights = {}) : weights_(std::move(weights)) {}

  std::string metric() const override { return "accuracy"; }

  void check(const data::Dataset& data, std::int64_t outputs) const override {
    for (const at::Tensor& labels : parts_of(data))
      TORCH_CHECK_VALUE(labels.defined() && labels.dim() == 1 && labels.scalar_type() == at::kLong, data.name,
                        ": the labels: expected int64 [n], got ", labels.sizes(), " of ", labels.scalar_type());
    TORCH_CHECK_VALUE(data.classes <= outputs, data.name, ": ", data.classes, " classes, the model has ", outputs);
  }

  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override {
    if (!weights_.defined()) return at::cross_entropy_loss(outputs, targets);
    return at::cross_entropy_loss(outputs, targets, weights_.to(outputs.device()));
  }

  at::Tensor scores(const at::Tensor& outputs, const at::Tensor& targets) const override {
    return outputs.argmax(1).eq(targets).to(at::kDouble);
  }

 private:
  at::Tensor weights_;
};

}  // namespace

const Task& classification() {
  static const Classification task;
  return task;
}

std::shared_ptr<const Task> balanced_classification(const data::Dataset& data) {
  const at::Tensor counts = data.train_labels.cpu().bincount({}, data.classes).to(at::kDouble),
                   samples = counts.sum() / static_cast<double>(data.classes);
  return std::make_shared<const Classification>((samples / counts.clamp_min(1)).to(at::kFloat));
}

Regression::Regression(const data::Dataset& data) {
  check_targets(data);
  if (data.table && data.table->curve) curved_ = data.table;
  const auto variance = [&](const at::Tensor& targets) {
    return (curved_ ? labels(*curved_, targets) : targets.to(at::kDouble))
        .var(0, /*unbiased=*/false)
        .sum()
        .item<double>();
  };
  TORCH_CHECK_VALUE(variance(data.train_labels) > 0, data.name,
                    ": all training targets are equal, there is nothing to explain");
  variance_ = variance(data.test_labels);
  if (variance_ == 0) variance_ = variance(data.train_labels);
}

void Regression::check(const data::Dataset& data, std::int64_t outputs) const {
  check_targets(data);
  TORCH_CHECK_VALUE(data.train_labels.size(1) == outputs && data.test_labels.size(1) == outputs, data.name,
                    ": the targets are ", data.train_labels.sizes(), " and ", data.test_labels.sizes(),
                    ", the model has ", outputs, " outputs");
}

at::Tensor Regression::loss(const at::Tensor& outputs, const at::Tensor& targets) const {
  return at::mse_loss(outputs, targets);
}

at::Tensor Regression::scores(const at::Tensor& outputs, const at::Tensor& targets) const {
  const at::Tensor error = curved_ ? answers(*curved_, outputs).sub_(labels(*curved_, targets)).to(outputs.device())
                                   : outputs.to(at::kDouble) - targets;
  return error.square().sum(1).div_(-variance_).add_(1);
}

std::shared_ptr<const Task> task_of(const data::Dataset& data) {
  if (data.table && data.table->regression) return std::make_shared<const Regression>(data);
  return {std::shared_ptr<void>(), &classification()};
}

}  // namespace bie::train
