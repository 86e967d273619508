// Scores that show what accuracy hides where classes have few samples.
#pragma once

#include <ATen/core/Tensor.h>

namespace bie::train {

struct ClassScores {
  std::int64_t commonest;    ///< class of most samples
  double majority;           ///< its share: the accuracy of an answer that is always the same
  double balanced_accuracy;  ///< mean over the classes of the share of their samples that is right
  /// Share of the pairs of a sample of a class and one of the others in which the former has the larger probability of
  /// the class, ties counted half; the mean over the classes, which of two classes is the usual area under the ROC
  /// curve. NaN where all samples are of one class.
  double auc;
};

/// Scores of outputs [n, classes] against labels, int64 [n]. Classes without samples do not count.
ClassScores class_scores(const at::Tensor& outputs, const at::Tensor& labels);

}  // namespace bie::train
