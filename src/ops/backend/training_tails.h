// Training epilogue of a product, and its derivative, by device.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "bie/ops.h"

namespace bie::ops {

struct TrainingTailInput {
  at::Tensor x, weight, bias, shortcut;  ///< all but x may be undefined
  TailActivation act;
  std::int64_t pool;
};

/// mean and rstd = 1 / sqrt(var + eps) of the batch, float32 [channels].
struct BatchStatistics {
  at::Tensor mean, rstd;
};

struct RunningStatistics {
  at::Tensor mean, var;  ///< float32 [channels], or undefined
  double momentum;
};

struct TrainingTailGrads {
  at::Tensor x, weight, bias, shortcut, slope;  ///< shortcut: undefined where it is not wanted
};

class TrainingTails {
 public:
  /// Whether run() and grads() have kernels; else torch's operators run one after the other.
  virtual bool has_kernels(const TrainingTailInput& in) const = 0;
  /// Writes y in x's memory format, and updates the statistics.
  virtual void run(const char* op, const TrainingTailInput& in, double eps, const RunningStatistics& running,
                   const at::Tensor& y, const BatchStatistics& batch) const = 0;
  virtual TrainingTailGrads grads(const char* op, const at::Tensor& g, const TrainingTailInput& in,
                                  const BatchStatistics& batch, bool want_shortcut) const = 0;

 protected:
  ~TrainingTails() = default;
};

}  // namespace bie::ops
