// A CSV file as a data set.
#pragma once

#include <string>

#include "bie/data/dataset.h"

namespace bie::data {

/// @throws formats::Error, or c10::ValueError, one sentence naming the file.
Dataset load_csv_dataset(const std::string& path, const DataOptions& options);

}  // namespace bie::data
