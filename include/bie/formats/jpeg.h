// JPEG images, read with libjpeg-turbo and libexif.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "bie/formats/mapped_file.h"
#include "bie/formats/png.h"

namespace bie::formats {

/// Reads the headers alone of the file that `path` names. Height and width are those of the picture as it is shown:
/// turned as the camera's note (EXIF orientation) says. @throws Error, here and below, one sentence naming the file:
/// also for CMYK, which printers use, and for a file that is cut off.
PictureFacts jpeg_facts(const std::string& path, const MappedFile& file);

/// uint8 [height, width, channels]: 1 channel (grey) or 3 (red, green, blue), as it is shown.
/// @param at_least  height and width: the picture may be read at 1/2, 1/4 or 1/8 of its size, in a fraction of the
///                  time, as far as both stay twice as large as these.
Array load_jpeg(const std::string& path, const MappedFile& file, std::int64_t channels,
                const std::optional<std::array<std::int64_t, 2>>& at_least = {});

}  // namespace bie::formats
