// Evaluation of a trained classifier: its answers, how often they are right, and how long they take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "bie/formats/table.h"
#include "bie/models/classifier.h"
#include "bie/train/task.h"

namespace bie::train {

/// Images of one forward pass, at most, where a whole data set is evaluated.
inline constexpr std::int64_t evaluation_batch = 256;

/// [images, classes] on the CPU, in evaluation mode on the model's device.
at::Tensor logits(models::Classifier& model, const at::Tensor& images);

/// The mean of the task's scores. @throws c10::ValueError where there are not as many outputs as targets, or none.
double mean_score(const Task& task, const at::Tensor& outputs, const at::Tensor& targets);
/// mean_score of the model's outputs, in evaluation mode.
double mean_score(models::Classifier& model, const Task& task, const at::Tensor& images, const at::Tensor& targets);

/// Score of classification(): the share of images whose largest logit is the label's.
double accuracy(models::Classifier& model, const at::Tensor& images, const at::Tensor& labels);

/// Outputs of a regression in the unit of its table, float64.
at::Tensor answers(const formats::TableForm& table, const at::Tensor& outputs);
/// The labels that targets were made of, float64.
at::Tensor labels(const formats::TableForm& table, const at::Tensor& targets);

/// Errors of a regression's outputs in the unit of its table. @throws c10::ValueError where the table has another task.
struct RegressionErrors {
  double mae;   ///< mean of |answer - target|
  double rmse;  ///< root of the mean of (answer - target)^2
};
RegressionErrors regression_errors(const std::optional<formats::TableForm>& table, const at::Tensor& outputs,
                                   const at::Tensor& targets);

/// Median seconds of one forward pass over the first `batch` images (repeated as needed), in evaluation mode and on the
/// device of the model, until it is done there.
double latency(models::Classifier& model, const at::Tensor& images, std::int64_t batch, int repeats);

/// Per 8- and 4-bit layer, by name (models::layer_names): the share of its activations that lie beyond the codes and
/// are clipped, in evaluation mode on the model's device.
std::map<std::string, double> saturated_shares(models::Classifier& model, const at::Tensor& images);

}  // namespace bie::train
