// An image of a convolution as rows of codes: every pixel quantised once, with the padding around it. Plain code.
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

/// The image as rows of codes with the padding around them: [batch][height][width] pixels, each with the codes of its
/// groups one after another.
struct Image {
  std::int64_t height, width, group_bytes, pixel_bytes;

  Image(const Conv2dShape& s, std::int64_t code_bytes)
      : height(s.in_h + 2 * s.pad_h),
        width(s.in_w + 2 * s.pad_w),
        group_bytes(code_bytes),
        pixel_bytes(s.groups * code_bytes) {}
  std::int64_t row_bytes() const { return width * pixel_bytes; }
  /// Pixels of taps that follow one another in a row of a window follow one another in memory.
  bool whole_rows(const Conv2dShape& s) const { return s.groups == 1 && s.dil_w == 1; }
};

/// What is quantised, and how. `tile` says what stands for a code.
struct ImageRows {
  const Tile& tile;
  const Width& width;
  const Conv2dShape& s;
  const Conv2dInput& x;
  const Image& image;
  std::uint32_t outside;  ///< four bytes of codes outside the image
};

/// Padded rows begin ... end - 1, which count batches and rows; false where NaN or infinity was seen.
bool encode_image(const ImageRows& rows, std::int64_t begin, std::int64_t end, char* codes);

}  // namespace bie::kernels::cpu
