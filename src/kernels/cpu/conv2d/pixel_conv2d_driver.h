// The convolution with pixels as lanes, for images and outputs in planes (NCHW). Plain code; loops in
// avx512/pixel_loop.h.
//
// The windows of 64 output pixels are copied side by side and each filter's words are broadcast to them, so that sums
// are written as planes lie. It reads the panels of conv2d_driver.h. Signs take it for windows of any depth, 8- and
// 4-bit codes up to a depth of 256, whose copies stay in L1. Signs have no zero: where a tap lies outside the image,
// masks of the pixels that read it take its contribution back. The only memory that a call keeps is a workspace of the
// calling thread.
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/conv2d/conv2d_driver.h"
#include "kernels/cpu/grouped_conv2d/grouped_conv2d_driver.h"

namespace bie::kernels::cpu {

/// Whether image and output are planes whose pixels fill vectors of `lanes` at least as well as a group's outputs do.
/// False for calls that are refused, for joined rows and for padding around skipped lines.
bool suits_pixels(const Tile& tile, const Width& width, const Conv2dShape& shape, const Conv2dInput& x,
                  const Conv2dOutput& y, int lanes);

/// Like run_conv2d with the panels of `tile`, for convolutions that suits_pixels accepts. The image becomes planes of
/// words, which hold the codes of neighbouring channels, with the padding around them; the windows of up to pixel_lanes
/// outputs are copied side by side and multiplied with every filter.
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

/// Groups of signs that are bytes in lanes, of as many channels as make words of bits faster in planes. Depends on the
/// weight and its groups alone.
template <const GroupedTile& lanes>
bool has_sign_planes(const Conv2dShape& s) {
  return suits_lanes(lanes, s) && s.group_in() >= 8;
}
/// Offset of the panels of `words`.
template <const Conv2dKernel& groups>
std::size_t sign_planes_at(const Conv2dShape& s) {
  return (groups.packed_bytes(s) + 63) / 64 * 64;
}

/// `groups`, which takes what suits `lanes`, but for planes of it that have pixels as lanes, which are those of
/// `words`. Panels hold both forms of such a weight.
template <const GroupedTile& lanes, const Tile& tile, const PixelTile& pixels, const Conv2dKernel& groups,
          const Conv2dKernel& words>
constexpr Conv2dKernel with_sign_planes() {
  return {groups.name,
          groups.isa,
          groups.accepts,
          [](const Conv2dShape& s) {
            return has_sign_planes<lanes>(s) ? sign_planes_at<groups>(s) + words.packed_bytes(s)
                                             : groups.packed_bytes(s);
          },
          [](const void* weight, const Conv2dShape& s, void* packed, const Parallel& parallel) {
            groups.prepack(weight, s, packed, parallel);
            if (has_sign_planes<lanes>(s))
              words.prepack(weight, s, static_cast<char*>(packed) + sign_planes_at<groups>(s), parallel);
          },
          [](const Conv2dShape& s, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
             const Parallel& parallel) {
            return has_sign_planes<lanes>(s) && suits_pixels(tile, binary_width, s, x, y, pixels.lanes)
                       ? words.run(s, x, static_cast<const char*>(packed) + sign_planes_at<groups>(s), y, parallel)
                       : groups.run(s, x, packed, y, parallel);
          }};
}

}  // namespace bie::kernels::cpu
