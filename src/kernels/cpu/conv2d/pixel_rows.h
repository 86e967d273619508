// An image of a convolution as rows of codes: every pixel quantised once, with the padding around it. Plain code.
//
// Two kinds of convolutions are computed as others. Lines that a kernel of one row or column skips are left out of the
// image. Where channels are so few that a unit would be mostly padding, each row of a window is joined to one pixel of
// kernel_w * in_c channels.
#pragma once

#include "bie/kernels/conv2d.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

inline constexpr double most_image_bytes = 0x1p46;  // sizes and places below it do not overflow

/// Pixels of an image and the padding around it; as a float, because paddings can be of any size.
inline double padded_plane(const Conv2dShape& s) {
  const auto padded = [](std::int64_t in, std::int64_t pad) {
    return static_cast<double>(in) + 2 * static_cast<double>(pad);
  };
  return padded(s.in_h, s.pad_h) * padded(s.in_w, s.pad_w);
}

/// Whether a kernel of one line skips lines, because its stride is longer. Skipped lines are not read.
inline bool skips(std::int64_t kernel, std::int64_t stride) { return kernel == 1 && stride > 1; }

/// The same convolution of the lines alone that windows read. Padding around them counts as lines of the image.
Conv2dShape without_skipped_lines(const Conv2dShape& s);

/// Some rows of planes without what lies between the pixels that are read.
struct PickedPlanes {
  const char* from;    ///< the first pixel of channel 0
  std::int64_t plane;  ///< elements from one channel to the next
  std::int64_t width;  ///< elements from one row to the next
  std::int64_t element, channels, rows, columns, step_h, step_w;
};
/// [channels][rows][columns].
void pick(const PickedPlanes& planes, char* out);

/// More channels fill units alone well enough; planes become rows of pixels sixteen channels at a time.
inline constexpr std::int64_t most_joined_channels = 16;

/// The same convolution with each row of a window joined to one pixel of kernel_w * in_c channels, ordered
/// [kernel_w][in_c]. s.groups must be 1.
Conv2dShape with_joined_rows(const Conv2dShape& s);

/// The image as rows of codes with the padding around them: [batch][height][width] pixels, each with the codes of its
/// groups one after another. Row i holds row i * step_h - top of what is given, and columns likewise; anything else is
/// padding.
struct Image {
  std::int64_t height, width, group_bytes, pixel_bytes;
  std::int64_t step_h, top, step_w, left;
  std::int64_t joined, dil_w;  ///< columns that a pixel holds, and from one of them to the next

  /// `given` is what `of` was made of.
  Image(const Conv2dShape& given, const Conv2dShape& of, std::int64_t code_bytes)
      : height(of.in_h + 2 * of.pad_h),
        width(of.in_w + 2 * of.pad_w),
        group_bytes(code_bytes),
        pixel_bytes(of.groups * code_bytes),
        step_h(given.stride_h / of.stride_h),
        top(given.pad_h),
        step_w(given.stride_w / of.stride_w),
        left(given.pad_w),
        joined(given.kernel_w / of.kernel_w),
        dil_w(given.dil_w) {}
  std::int64_t row_bytes() const { return width * pixel_bytes; }
};

/// Arguments of quantising an image into rows of pixels. `tile` says how a code is stored.
struct ImageRows {
  const Tile& tile;
  const Width& width;
  const Conv2dShape& s;  ///< of what is given
  const Conv2dInput& x;
  const Image& image;
  std::uint32_t outside;  ///< four bytes of codes outside the image
};

/// Padded rows begin ... end - 1, which count batches and rows; false where NaN or infinity was seen.
bool encode_image(const ImageRows& rows, std::int64_t begin, std::int64_t end, char* codes);

}  // namespace bie::kernels::cpu
