// Passes over images that no product belongs to: planes, NCHW, where nothing else is said.
#pragma once

#include <cstdint>

#include "bie/kernels/parallel.h"

namespace bie::kernels {

/// The mean of each of `planes` planes of `count` elements: 16 sums side by side, element i into sum i % 16, which are
/// then added in halves (sum j and j + 8, j + 4, ...), times fl(1 / count).
void plane_means(const float* x, std::int64_t planes, std::int64_t count, float* y, const Parallel&);
/// plane_means for channels last: [images, count, channels] to [images, channels].
void channel_means(const float* x, std::int64_t images, std::int64_t count, std::int64_t channels, float* y,
                   const Parallel&);

/// Every `stride`th pixel of every `stride`th row of [images, channels, height, width], then planes of zeros up to
/// out_channels: the shortcut without weights (He et al. 2016, option A).
struct StridedPlanes {
  std::int64_t images, channels, height, width, stride, out_channels;
  std::int64_t out_height() const { return (height + stride - 1) / stride; }
  std::int64_t out_width() const { return (width + stride - 1) / stride; }
};
void strided_planes(const StridedPlanes&, const float* x, float* y, const Parallel&);
/// strided_planes for channels last.
void strided_pixels(const StridedPlanes&, const float* x, float* y, const Parallel&);

/// Maximum of each pool x pool square of codes [images, height, width, channels]; incomplete squares at the edges are
/// left out.
struct CodePoolShape {
  std::int64_t images, channels, height, width, pool;
};
void pool_codes(const CodePoolShape&, const std::int8_t* x, std::int8_t* y, const Parallel&);

/// y = exp(x - max) / sum in float32, rows of `count`, with the exp of docs/spec/nets.md; the sum is that of ascending
/// elements.
void softmax_rows(const float* x, std::int64_t rows, std::int64_t count, float* y);

/// Windows over planes of [height, width]. The pads are those of each side, each less than the kernel.
struct PoolShape {
  std::int64_t planes, height, width, kernel_h, kernel_w, stride_h, stride_w, top, left, bottom, right;
  std::int64_t out_height() const { return (height + top + bottom - kernel_h) / stride_h + 1; }
  std::int64_t out_width() const { return (width + left + right - kernel_w) / stride_w + 1; }
};
/// The largest pixel of the window that lies in the plane: the largest of each column, then of these (of v > largest so
/// far, from the first on).
void max_pool(const PoolShape&, const float* x, float* y, const Parallel&);
/// max_pool for channels last: images [height, width, channels]. PoolShape::planes is not read.
void max_pool_pixels(const PoolShape&, std::int64_t images, std::int64_t channels, const float* x, float* y,
                     const Parallel&);
/// Sum of each window, rows and columns ascending, divided by the number of its pixels, or by that of all pixels of the
/// window where counts_border.
void average_pool(const PoolShape&, bool counts_border, const float* x, float* y, const Parallel&);

/// Planes with `value` around them: [height + top + bottom, width + left + right].
struct BorderShape {
  std::int64_t planes, height, width, top, left, bottom, right;
};
void border_planes(const BorderShape&, float value, const float* x, float* y, const Parallel&);

/// Axis i of y is axis order[i] of x, of `images` arrays of sizes[3].
void transpose_planes(std::int64_t images, const std::int64_t* sizes, const std::int64_t* order, const float* x,
                      float* y, const Parallel&);

/// lo where x < lo, hi where x > hi, else x.
void clip(const float* x, std::int64_t count, float lo, float hi, float* y, const Parallel&);
/// Whether none of the values is NaN or infinity.
bool all_finite(const float* x, std::int64_t count);
/// The code clamp(rint(fl(x / step)) + zero, lo, hi) as a number again: fl(float(code - zero) * step). The distances of
/// lo and hi from zero are below 2^22.
void round_to_steps(const float* x, std::int64_t count, float step, int zero, int lo, int hi, float* y,
                    const Parallel&);
/// x * slope[channel] where x < 0, of planes of `count` elements.
void prelu_planes(const float* x, std::int64_t images, std::int64_t channels, std::int64_t count, const float* slope,
                  float* y, const Parallel&);
/// Numbered as in net files. False of NaN.
enum class Comparison : std::int64_t { greater, greater_or_equal, less, less_or_equal, equal };
inline constexpr auto last_comparison = Comparison::equal;
/// yes[i] where x[i] compares so with `limit`, else no[i].
void choose(Comparison comparison, float limit, const float* x, const float* yes, const float* no, std::int64_t count,
            float* y, const Parallel&);
/// x * by[i / count]: count 1 is a product of two arrays, else each plane has its factor.
void multiply_planes(const float* x, const float* by, std::int64_t planes, std::int64_t count, float* y,
                     const Parallel&);

}  // namespace bie::kernels
