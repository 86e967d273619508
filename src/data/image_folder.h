// A folder of PNG files as a data set.
#pragma once

#include <string>
#include <vector>

#include "bie/data/dataset.h"

namespace bie::data {

/// DIR/CLASS/*.png, every fifth image of a class for testing; or DIR/train/CLASS/*.png and DIR/test/CLASS/*.png. The
/// classes are the folders in the order of their names. All images have one size; they are grey unless one is coloured.
/// @throws c10::ValueError, one sentence naming the folder or file.
Dataset load_image_folder(const std::string& dir);

/// The files that it reads, with its refusals of folders and names.
std::vector<std::string> image_names(const std::string& dir);

}  // namespace bie::data
