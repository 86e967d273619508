// A camera's note (EXIF) of how the stored rows and columns lie in the picture that is shown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bie/formats/array.h"

namespace bie::formats {

struct Orientation {
  bool transposed = false;  ///< stored rows are shown as columns
  bool from_right = false, from_bottom = false;
};

/// Reads a block of EXIF data, with or without the six bytes "Exif\0\0" before it. The default where it has no note.
Orientation orientation_of(const std::uint8_t* exif, std::size_t size);

/// The stored pixels [height, width, channels] as uint8 of the sizes that are shown.
Array shown(std::vector<std::uint8_t> stored, std::int64_t height, std::int64_t width, std::int64_t channels,
            const Orientation& orientation);

}  // namespace bie::formats
