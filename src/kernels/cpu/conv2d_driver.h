// The convolution around a tile: quantise the image once into pixel rows, then read the windows in place. Plain code.
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

/// Pixels of an image and the padding around it; as a float, because paddings can be of any size.
inline double padded_plane(const Conv2dShape& s) {
  const auto padded = [](std::int64_t in, std::int64_t pad) {
    return static_cast<double>(in) + 2 * static_cast<double>(pad);
  };
  return padded(s.in_h, s.pad_h) * padded(s.in_w, s.pad_w);
}

/// The panels of one group.
PanelLayout conv2d_layout(const Tile& tile, const Conv2dShape& shape);
void prepack_conv2d(const Tile& tile, const Width& width, const void* weight, const Conv2dShape& shape, void* packed,
                    const Parallel& parallel);
Status run_conv2d(const Tile& tile, const Width& width, const Conv2dShape& shape, const Conv2dInput& x,
                  const void* packed, const Conv2dOutput& y, const Parallel& parallel);

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

}  // namespace bie::kernels::cpu
