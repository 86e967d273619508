// WebP images, read with libwebp.
#pragma once

#include <string>

#include "bie/formats/mapped_file.h"
#include "bie/formats/png.h"

namespace bie::formats {

/// Reads the header alone of the file that `path` names; a WebP image is coloured. @throws Error, here and below, one
/// sentence naming the file: also for one that moves.
PictureFacts webp_facts(const std::string& path, const MappedFile& file);

/// uint8 [height, width, channels]: 1 channel (grey, the luminance) or 3 (red, green, blue). Transparent pixels are
/// black.
Array load_webp(const std::string& path, const MappedFile& file, std::int64_t channels);

}  // namespace bie::formats
