// Passes over the planes of NCHW images that no product belongs to.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// The mean of each of `planes` planes of `count` elements: 16 sums side by side, element i into sum i % 16, which are
/// then added in halves (sum j and j + 8, j + 4, ...), times fl(1 / count).
void plane_means(const float* x, std::int64_t planes, std::int64_t count, float* y, const Parallel&);

/// Every `stride`th pixel of every `stride`th row of [images, channels, height, width], then planes of zeros up to
/// out_channels: the shortcut without weights (He et al. 2016, option A).
struct StridedPlanes {
  std::int64_t images, channels, height, width, stride, out_channels;
  std::int64_t out_height() const { return (height + stride - 1) / stride; }
  std::int64_t out_width() const { return (width + stride - 1) / stride; }
};
void strided_planes(const StridedPlanes&, const float* x, float* y, const Parallel&);

/// y = exp(x - max) / sum in float32, rows of `count`.
void softmax_rows(const float* x, std::int64_t rows, std::int64_t count, float* y);

}  // namespace bie::kernels
