// Training epilogue of a product, composed of torch's operators: for every device and every layout.
#pragma once

#include "ops/backend/training_tails.h"

namespace bie::ops {

void composed_training_tail(const TrainingTailInput& in, double eps, const RunningStatistics& running,
                            const at::Tensor& y, const BatchStatistics& batch);
TrainingTailGrads composed_training_tail_grads(const at::Tensor& g, const TrainingTailInput& in,
                                               const BatchStatistics& batch, bool want_shortcut);

}  // namespace bie::ops
