// Pixels of images that come from files.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/error.h"

namespace bie::formats {

/// An Error for an image whose pixels would take more memory than a photo's.
inline void check_pixels(const char* kind, const std::string& path, std::int64_t height, std::int64_t width) {
  constexpr std::int64_t most_side = 1 << 14, most_pixels = 1 << 26;
  if (height > most_side || width > most_side || height * width > most_pixels)
    fail_file(kind, path, "is ", height, "x", width, ", at most ", most_side, " pixels a side and ", most_pixels,
              " in all are read");
}

}  // namespace bie::formats
