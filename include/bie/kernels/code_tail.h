// Epilogue of a product in an exported net, up to the codes of the next product: the arithmetic of block_tail.h on
// planes, with BatchNorm's scale and shift computed beforehand, and without memory of its own.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// [images, channels, height, width], or [images, height, width, channels] where channels lie last; a matrix is images
/// of one pixel.
struct CodeTailShape {
  std::int64_t images, channels, height, width;
  std::int64_t pool;  ///< the largest of each pool x pool square is kept, the rest at the edges left out; 1: all
  bool channels_last = false;
};

/// v = pool(act(x * scale + shift + add)), with act of block_tail.h; y is v, or the code of v + bias:
/// clamp(rint((v + bias) / step), lo, hi) by true division, or where `signs` 1 for v + bias >= 0 and else -1.
struct CodeTailCall {
  const float *x, *add;        ///< of the shape; add may be null
  const float *scale, *shift;  ///< [channels] each, or null: 1, and -0, which changes nothing
  float slope;
  bool cuts;
  void* y;            ///< [images, channels, height / pool, width / pool]
  Dtype dtype;        ///< f32 or s8
  const float* bias;  ///< [channels] or null, of codes
  float step;
  int lo, hi;
  bool signs;
};

struct CodeTailKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const CodeTailShape&);
  /// Status::bad_shape where a size is negative or pool is below 1, bad_scale for codes of a step that
  /// is no positive number, not_finite where v + bias of a code is not; y then holds anything.
  Status (*run)(const CodeTailShape&, const CodeTailCall&, const Parallel&);
};
Table<CodeTailKernel> code_tail_table();

/// The numbers of a BatchNorm with fixed mean and variance: scale = weight / sqrt(var + eps), shift = bias - mean *
/// scale, as block_tail has them. weight and bias may be null: 1 and 0.
void norm_numbers(std::int64_t channels, const float* mean, const float* var, const float* weight, const float* bias,
                  float eps, float* scale, float* shift);

}  // namespace bie::kernels
