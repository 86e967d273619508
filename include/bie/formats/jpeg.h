// JPEG images, read with libjpeg-turbo.
#pragma once

#include <string>

#include "bie/formats/png.h"

namespace bie::formats {

/// Reads the headers alone. @throws Error, here and below, one sentence naming the file: also for CMYK, which printers
/// use, and for a file that is cut off.
PictureFacts jpeg_facts(const std::string& path);

/// uint8 [height, width, channels]: 1 channel (grey) or 3 (red, green, blue). As the pixels are stored: a note of the
/// camera's rotation is passed over.
Array load_jpeg(const std::string& path, std::int64_t channels);

}  // namespace bie::formats
