// What follows a product in training, of torch's operators: on every device, in every layout.
#pragma once

#include "ops/backend/training_tails.h"

namespace bie::ops {

void composed_training_tail(const TrainingTailInput& in, double eps, const RunningStatistics& running,
                            const at::Tensor& y, const BatchStatistics& batch);
TrainingTailGrads composed_training_tail_grads(const at::Tensor& g, const TrainingTailInput& in,
                                               const BatchStatistics& batch, bool want_shortcut);

}  // namespace bie::ops
