// A folder of pictures as a data set.
#pragma once

#include <string>
#include <vector>

#include "bie/data/dataset.h"

namespace bie::data {

/// load_dataset's images:DIR. The classes are the folders in the order of their names; pictures are grey unless one is
/// coloured. Files that are no pictures are left out, and a note counts them.
/// @throws formats::Error, one sentence naming the folder or file.
Dataset load_image_folder(const std::string& dir, const PictureOptions& options);

/// The pictures that it reads, with its refusals of folders and names.
std::vector<std::string> image_names(const std::string& dir, bool nested);

}  // namespace bie::data
