// A CSV file as a data set.
#pragma once

#include <string>

#include "bie/data/dataset.h"

namespace bie::data {

/// Rows of numbers as images of 1 x 1 x columns, as they are; labels are whole numbers from 0 on, or names.
/// @throws c10::ValueError, one sentence naming the file.
Dataset load_csv_dataset(const std::string& path);

}  // namespace bie::data
