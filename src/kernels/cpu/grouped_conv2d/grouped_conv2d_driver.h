// The convolution of groups with few channels or outputs, depthwise ones among them. The shape of the weight alone
// decides that it is taken. Plain code.
//
// Sixteen neighbouring outputs are lanes, and each lane has codes of its own: a line of the image becomes units of four
// bytes, one per lane, which hold a group's channels and, where these do not fill them, the pixels to the right. A ring
// keeps the lines that windows still read, and two rows of outputs share their loads. Codes of all widths are bytes
// here, signs too, so that zero padding is a code like any other.
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

/// Whether outputs of several groups share lanes, or groups are too small to fill a unit. Depends on the weight and its
/// groups alone. False for calls that are refused.
bool suits_lanes(const GroupedTile& tile, const Conv2dShape& shape);

std::size_t grouped_conv2d_bytes(const GroupedTile& tile, const Conv2dShape& shape);
void prepack_grouped_conv2d(const GroupedTile& tile, const Width& width, const void* weight, const Conv2dShape& shape,
                            void* packed, const Parallel& parallel);
Status run_grouped_conv2d(const GroupedTile& tile, const Width& width, const Conv2dShape& shape, const Conv2dInput& x,
                          const void* packed, const Conv2dOutput& y, const Parallel& parallel);

/// `others`, but for what suits `tile`, which it computes.
template <const GroupedTile& tile, const Width& width, const Conv2dKernel& others>
constexpr Conv2dKernel with_groups() {
  return {others.name,
          others.isa,
          nullptr,
          [](const Conv2dShape& s) {
            return suits_lanes(tile, s) ? grouped_conv2d_bytes(tile, s) : others.packed_bytes(s);
          },
          [](const void* weight, const Conv2dShape& s, void* packed, const Parallel& parallel) {
            if (suits_lanes(tile, s))
              prepack_grouped_conv2d(tile, width, weight, s, packed, parallel);
            else
              others.prepack(weight, s, packed, parallel);
          },
          [](const Conv2dShape& s, const Conv2dInput& x, const void* packed, const Conv2dOutput& y,
             const Parallel& parallel) {
            return suits_lanes(tile, s) ? run_grouped_conv2d(tile, width, s, x, packed, y, parallel)
                                        : others.run(s, x, packed, y, parallel);
          }};
}

}  // namespace bie::kernels::cpu
