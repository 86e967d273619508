// PNG images, read with libpng.
#pragma once

#include <cstdint>
#include <string>

#include "bie/formats/array.h"
#include "bie/formats/mapped_file.h"

namespace bie::formats {

struct PictureFacts {
  std::int64_t height, width;
  bool colour;
};

/// Reads the header alone of the file that `path` names. @throws Error, here and below, one sentence naming the file.
PictureFacts png_facts(const std::string& path, const MappedFile& file);

/// uint8 [height, width, channels]: 1 channel (grey, the luminance of a coloured image) or 3 (red, green, blue). 16-bit
/// samples are rounded, and what is transparent shows black.
Array load_png(const std::string& path, const MappedFile& file, std::int64_t channels);

}  // namespace bie::formats
