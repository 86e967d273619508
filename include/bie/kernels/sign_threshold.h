// The signs that follow a product whose whole tail has become one threshold a channel.
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// [images, channels, height, width], NCHW; a matrix is images of one pixel.
struct SignThresholdShape {
  std::int64_t images, channels, height, width;
  std::int64_t pool;  ///< 1 to 16
};

/// sign = (acc >= threshold) != flip; of each pool x pool square it is 1 where one of them is.
struct SignThresholdCall {
  const std::int32_t* acc;
  const std::int32_t* threshold;  ///< [channels]
  const std::uint8_t* flip;       ///< [channels], 0 or 1
  void* y;
  Dtype dtype;  ///< s8: 1 and -1; bits, of one pixel alone: packed rows of channels, pad bits 0
};

struct SignThresholdKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const SignThresholdShape&);
  /// Status::bad_shape where a size is negative, the pool is none of those above or bits are wanted of images.
  Status (*run)(const SignThresholdShape&, const SignThresholdCall&, const Parallel&);
};
Table<SignThresholdKernel> sign_threshold_table();

}  // namespace bie::kernels
