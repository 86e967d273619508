// Pixels of images that come from files.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/error.h"

namespace bie::formats {

/// The memory that one picture may take.
inline constexpr std::int64_t most_side = 1 << 14, most_pixels = 1 << 26;

/// An Error for an image whose pixels would take more memory than a photo's.
inline void check_pixels(const char* kind, const std::string& path, std::int64_t height, std::int64_t width) {
  if (height > most_side || width > most_side || height * width > most_pixels)
    fail_file(kind, path, "is ", height, "x", width, ", at most ", most_side, " pixels a side and ", most_pixels,
              " in all are read");
}

/// Red, green, blue and alpha to `channels` bytes: 3, or 1 for the luminance 0.299 red + 0.587 green + 0.114 blue of
/// the stored values (ITU-R BT.601, as JPEG and Pillow have it), in 65536ths. A transparent pixel shows black.
inline void write_pixel(const std::uint8_t* rgba, std::int64_t channels, std::uint8_t* to) {
  std::uint8_t rgb[3];
  for (int c = 0; c < 3; ++c) rgb[c] = static_cast<std::uint8_t>((rgba[c] * rgba[3] + 127) / 255);
  if (channels == 1)
    *to = static_cast<std::uint8_t>((19595 * rgb[0] + 38470 * rgb[1] + 7471 * rgb[2] + 32768) >> 16);
  else
    for (int c = 0; c < 3; ++c) to[c] = rgb[c];
}

}  // namespace bie::formats
