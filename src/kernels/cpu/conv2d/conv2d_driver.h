// The convolution around a tile: quantises the image once into rows of pixels with the padding around them
// (pixel_rows.h), then reads the windows in place through pointers. Where groups and dilation allow, a pointer covers a
// whole row of a window. So the tiles of the GEMM serve convolutions too, and no im2col of the image exists. Plain
// code.
//
// All tiles of a block of windows are one call; with channels last, a block continues from one image to the next. The
// epilogue of an exported net (Conv2dTail) is computed from the block's sums by the tile's function, or by the plain
// one in passes/.
//
// Three other drivers take convolutions that this one serves badly: pixel_conv2d_driver.h (pixels as lanes, NCHW),
// grouped_conv2d_driver.h (groups of few channels or outputs) and depthwise_signs.h (depthwise signs, NHWC).
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/conv2d/pixel_rows.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

/// Whether a row of a window is padded to whole units as one, because its pixels alone would be mostly padding. Depends
/// on the weight and its groups alone.
bool joins_rows(const Tile& tile, const Conv2dShape& shape);

/// The panels of one group.
PanelLayout conv2d_layout(const Tile& tile, const Conv2dShape& shape);
void prepack_conv2d(const Tile& tile, const Width& width, const void* weight, const Conv2dShape& shape, void* packed,
                    const Parallel& parallel);
Status run_conv2d(const Tile& tile, const Width& width, const Conv2dShape& shape, const Conv2dInput& x,
                  const void* packed, const Conv2dOutput& y, const Parallel& parallel);

/// Computes the tail of sums [outputs][tile.nr] of some columns, from an output and channel on; `stride` is the number
/// of channels per output. False if a code is not finite.
bool run_tail(const Tile& tile, const Conv2dTail& tail, float y_scale, const std::int32_t* acc, std::int64_t outputs,
              int columns, std::int64_t stride, std::int64_t output, std::int64_t channel);

/// A kernel for a tile.
template <const Tile& tile, const Width& width>
constexpr Conv2dKernel conv2d_kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          [](const Conv2dShape& s) { return static_cast<std::size_t>(s.groups) * conv2d_layout(tile, s).bytes(); },
          [](const void* weight, const Conv2dShape& s, void* packed, const Parallel& parallel) {
            prepack_conv2d(tile, width, weight, s, packed, parallel);
          },
          [](const Conv2dShape& shape, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
             const Parallel& parallel) { return run_conv2d(tile, width, shape, x, packed, y, parallel); }};
}

/// Whether tiles of many rows suit a convolution: in one group, with windows that fill a row of a tile. False for calls
/// that are refused.
bool is_deep(const Width& width, const Conv2dShape& shape, const Conv2dInput& x, const Conv2dOutput& y);

/// A kernel of two tiles with the same panels: `tile` computes what is deep, `others` the rest.
template <const Tile& tile, const Conv2dKernel& others, const Width& width>
constexpr Conv2dKernel deep_conv2d_kernel(const char* name, Isa isa) {
  Conv2dKernel kernel = others;
  kernel.name = name;
  kernel.isa = isa;
  kernel.run = [](const Conv2dShape& shape, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
                  const Parallel& parallel) {
    return is_deep(width, shape, x, y) ? run_conv2d(tile, width, shape, x, packed, y, parallel)
                                       : others.run(shape, x, packed, y, parallel);
  };
  return kernel;
}

}  // namespace bie::kernels::cpu
