// A net's task: the loss and the score of its outputs. The training loop knows nothing else about it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "bie/data/dataset.h"

namespace bie::train {

class Task {
 public:
  virtual ~Task() = default;
  /// "accuracy", "R2": the mean of scores(), of which 1 is perfect.
  virtual std::string metric() const = 0;
  /// @throws c10::ValueError, one sentence, where the data hold no targets of this task, or none for so many outputs.
  virtual void check(const data::Dataset& data, std::int64_t outputs) const = 0;
  /// The mean over the samples, which trains the net.
  virtual at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const = 0;
  /// [n] float64, one per sample, on the device of the outputs.
  virtual at::Tensor scores(const at::Tensor& outputs, const at::Tensor& targets) const = 0;
};

/// Cross-entropy of logits [n, classes] and labels, int64 [n]; a score is 1 where the largest logit is the label's.
const Task& classification();

/// Mean squared error of outputs [n, k] and targets, float32 [n, k]. The mean score of the test samples is R2, the
/// share of their targets' variance that the outputs explain: a sample scores 1 - |output - target|^2 / sum of the
/// variances of the k test targets (of the training targets where those of the test are all equal). Samples of a table
/// whose label is behind a curve (TableForm::curve) are scored by their labels, not by their targets.
class Regression : public Task {
 public:
  /// @throws c10::ValueError where the training targets are not float32 [n, k], hold NaN or infinity, or are all equal.
  explicit Regression(const data::Dataset& data);
  std::string metric() const override { return "R2"; }
  void check(const data::Dataset& data, std::int64_t outputs) const override;
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& targets) const override;
  at::Tensor scores(const at::Tensor& outputs, const at::Tensor& targets) const override;

 private:
  std::optional<formats::TableForm> curved_;  ///< of a label behind a curve
  double variance_;
};

/// classification() with a weight for each class in the loss: samples / (classes * samples of the class), of the
/// training samples, so that each class weighs as much as another.
std::shared_ptr<const Task> balanced_classification(const data::Dataset& data);

/// Task of a data set: a regression if its table says so, else classification().
std::shared_ptr<const Task> task_of(const data::Dataset& data);

}  // namespace bie::train
