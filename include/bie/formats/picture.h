// Pictures as users have them: PNG, JPEG and WebP files of any size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bie/formats/mapped_file.h"
#include "bie/formats/png.h"

namespace bie::formats {

/// How a picture of another shape is brought to a size.
enum class Fit {
  crop,     ///< its middle, cut to the shape
  pad,      ///< the whole of it, with black borders
  stretch,  ///< the whole of it, out of shape
};
/// "crop", "pad" or "stretch".
const char* name(Fit fit);
std::optional<Fit> fit_of(const std::string& name);

struct PictureForm {
  std::int64_t height, width;
  Fit fit = Fit::crop;
};

/// Whether the first bytes are those of a picture that is read.
bool is_picture(const MappedFile& file);

/// Reads the headers alone. @throws Error, here and below, one sentence naming the file.
PictureFacts picture_facts(const std::string& path);
/// The overloads that take a file read it where it is already open; `path` names it in error sentences.
PictureFacts picture_facts(const std::string& path, const MappedFile& file);

/// uint8 [channels, height, width], 1 channel (grey) or 3, of its own size or brought to one: by a triangle filter
/// (linear interpolation that takes in every pixel where it makes smaller), on the stored values, in float32. A JPEG
/// file may be read at a fraction of its size first (load_jpeg).
Array load_picture(const std::string& path, std::int64_t channels, const std::optional<PictureForm>& form = {});
Array load_picture(const std::string& path, const MappedFile& file, std::int64_t channels,
                   const std::optional<PictureForm>& form = {});

}  // namespace bie::formats
