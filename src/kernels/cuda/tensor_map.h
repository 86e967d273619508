// Descriptions of matrices and images for the tensor memory accelerator.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "bie/kernels/status.h"

namespace bie::kernels::cuda {

struct Box {
  int columns, rows;
};

/// `rows` rows of `columns` elements of `bytes` bytes, `stride` bytes apart, moved in boxes of at most 128 bytes per
/// row.
/// Data and stride are multiples of 16 bytes. In shared memory the 16-byte chunks of a box row stand in the order of
/// the swizzle as wide as the row, 64 or 128 bytes.
Status make_tensor_map(const void* data, std::int64_t rows, std::int64_t columns, int bytes, std::int64_t stride,
                       Box box, CUtensorMap* map);

/// Pixels of an image, and the windows of a convolution over them.
struct WindowMap {
  std::int64_t batch, in_h, in_w, pixel_bytes;  ///< a pixel's elements, a multiple of 16
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w;
};
/// Whether the TMA supports these windows.
bool maps_windows(const WindowMap& windows);

/// A box is columns of one tap of the windows of as many output pixels as it has rows, one behind the other across
/// lines and images: elements, of `bytes` bytes, outside of the image or behind a pixel's last one are 0. In shared
/// memory as above. PTX ISA, "im2col mode".
Status make_window_map(const void* data, const WindowMap& windows, int bytes, Box box, CUtensorMap* map);

}  // namespace bie::kernels::cuda
