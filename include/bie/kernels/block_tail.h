// Epilogue of a product in evaluation, in one pass over its results: BatchNorm, residual (shortcut), activation, pool.
#pragma once

#include <cstdint>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// [images, channels, height, width] in one of two orders of memory; a matrix is images of one pixel.
struct BlockTailShape {
  std::int64_t images, channels, height, width;
  std::int64_t pool;  ///< the largest of each pool x pool square is kept, the rest at the edges left out; 1: all
  ImageLayout layout;
};

/// y = pool(act(x * a + b + add)), a = weight / sqrt(var + eps), b = bias - mean * a; act(v) is v where v >= 0 and else
/// v * slope, or 0 where it `cuts`. NaN stays. Arrays are float32 and dense.
struct BlockTailCall {
  const float *x, *add;                     ///< of the shape; add may be null
  const float *mean, *var, *weight, *bias;  ///< [channels] each; mean and var are null together: a = 1, b = 0
  float eps;
  float slope;
  bool cuts;  ///< a slope of 0 would make infinity NaN
  float* y;   ///< [images, channels, height / pool, width / pool]
};

struct BlockTailKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const BlockTailShape&);
  /// Status::bad_shape where a size is negative or pool is below 1.
  Status (*run)(const BlockTailShape&, const BlockTailCall&, const Parallel&);
};
Table<BlockTailKernel> block_tail_table();

}  // namespace bie::kernels
