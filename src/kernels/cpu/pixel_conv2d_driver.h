// The convolution with pixels as lanes, for images and outputs in planes. Plain code.
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/conv2d_driver.h"

namespace bie::kernels::cpu {

/// Whether image and output are planes whose pixels fill vectors of `lanes` at least as well as a group's outputs do.
/// No for what is refused, for rows that are joined and for padding around lines that are skipped.
bool suits_pixels(const Tile& tile, const Width& width, const Conv2dShape& shape, const Conv2dInput& x,
                  const Conv2dOutput& y, int lanes);

/// As run_conv2d with the panels of `tile`, for what suits_pixels. The image becomes planes of words, which hold the
/// codes of neighbouring channels, with the padding around them; the windows of up to pixel_lanes outputs are copied
/// side by side and meet every filter.
Status run_pixel_conv2d(const Tile& tile, const Width& width, const PixelTile& pixels, const Conv2dShape& shape,
                        const Conv2dInput& x, const void* packed, const Conv2dOutput& y, const Parallel& parallel);

/// A kernel for a tile that has both forms: outputs as lanes, or pixels where they fill more of them.
template <const Tile& tile, const PixelTile& pixels, const Width& width>
constexpr Conv2dKernel pixel_conv2d_kernel(const char* name, Isa isa) {
  Conv2dKernel kernel = conv2d_kernel<tile, width>(name, isa);
  kernel.run = [](const Conv2dShape& shape, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
                  const Parallel& parallel) {
    return suits_pixels(tile, width, shape, x, y, pixels.lanes)
               ? run_pixel_conv2d(tile, width, pixels, shape, x, packed, y, parallel)
               : run_conv2d(tile, width, shape, x, packed, y, parallel);
  };
  return kernel;
}

}  // namespace bie::kernels::cpu
