#include "ops/backend/training_tails.h"

#include "ops/backend/backend.h"
#include "ops/tail/composed_training_tail.h"

namespace bie::ops::cpu {
namespace {

class CpuTrainingTails final : public TrainingTails {
  bool has_kernels(const TrainingTailInput&) const override { return false; }
  void run(const char*, const TrainingTailInput& in, double eps, const RunningStatistics& running, const at::Tensor& y,
           const BatchStatistics& batch) const override {
    composed_training_tail(in, eps, running, y, batch);
  }
  TrainingTailGrads grads(const char*, const at::Tensor& g, const TrainingTailInput& in, const BatchStatistics& batch,
                          bool want_shortcut) const override {
    return composed_training_tail_grads(g, in, batch, want_shortcut);
  }
};

}  // namespace

const TrainingTails& training_tails() {
  static const CpuTrainingTails it;
  return it;
}

}  // namespace bie::ops::cpu
