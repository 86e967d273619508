// Training epilogue of a product on CUDA: BatchNorm with the batch's own statistics, residual, activation, pool.
#pragma once

#include <cstdint>

#include "bie/kernels/cuda/device.h"
#include "bie/kernels/dtype.h"

namespace bie::kernels::cuda {

/// y = pool(act(z)), z = (x - mean) * rstd * weight + bias + shortcut. mean and rstd = 1 / sqrt(var + eps) are those of
/// a channel's elements, var being divided by their number. Computed in float32, rounded once.
struct TrainingTail {
  std::int64_t images, height, width, channels;  ///< pixels lie in channels_last; rows of a matrix are images of one
  int pool;              ///< 1 or 2: the largest of each 2 x 2 pixels is kept, the rest at the edges left out
  Dtype dtype;           ///< f32, bf16 or f16: of x, shortcut, y and their gradients
  const void* x;         ///< arrays of `dtype` begin on a boundary of 16 bytes
  const void* shortcut;  ///< like x, or null: 0
  const float* weight;   ///< [channels], or null: 1
  const float* bias;     ///< [channels], or null: 0
  bool relu;             ///< act(z) is 0 for z <= 0
  const float* slope;    ///< of one element: act(z) is slope * z for z <= 0; null without relu: act(z) = z
  float eps;
  float* mean;  ///< [channels], which training_tail finds
  float* rstd;
};

/// Running statistics, updated by training_tail: statistic += momentum * (the batch's - statistic). var takes the
/// unbiased estimate (divided by count - 1).
struct RunningStatistics {
  float* mean;  ///< [channels], or null: there are none
  float* var;
  float momentum;
};

struct TrainingTailGrads {
  const void* y;   ///< the gradient of y, from a boundary of 16 bytes on
  void* x;         ///< like x
  void* shortcut;  ///< like x, or null
  float* weight;   ///< [channels], or null
  float* bias;
  float* slope;  ///< of one element, or null
};

/// Whether there are kernels: channels are a multiple of 4, and sizes fit 31 bits.
bool has_training_tail(const TrainingTail&);
/// Bytes of workspace for either function; the workspace must be aligned to 16 bytes.
std::int64_t training_tail_bytes(const TrainingTail&);
/// Status::bad_shape where there is no kernel.
Status training_tail(const TrainingTail&, const RunningStatistics&, void* y, void* workspace, const Queue&);
/// The gradient of a pool window goes to the pixel that holds its maximum, the first one on ties; dz of the others is
/// 0. Then grad_bias = sum(dz), grad_weight = sum(dz * xhat), xhat = (x - mean) * rstd, grad_x = weight * rstd * (dz -
/// mean(dz) - xhat * mean(dz * xhat)), grad_shortcut = dz.
Status training_tail_grads(const TrainingTail&, const TrainingTailGrads&, void* workspace, const Queue&);

}  // namespace bie::kernels::cuda
