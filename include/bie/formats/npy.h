// Arrays as numpy.save writes them.
// Source: numpy/lib/format.py of NumPy 2, "Format Version 1.0" to "3.0".
#pragma once

#include <string>

#include "bie/formats/array.h"

namespace bie::formats {

/// A dense array in C order of uint8, int8, int16, int32, int64, float16, float32, float64 or bool.
/// @throws Error, one sentence naming the file: also for arrays in Fortran order or in big-endian bytes.
Array load_npy(const std::string& path);

}  // namespace bie::formats
