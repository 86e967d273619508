// Arrays as numpy.save writes them.
// Source: numpy/lib/format.py of NumPy 2, "Format Version 1.0" to "3.0".
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace bie::io {

/// A contiguous tensor in C order of uint8, int8, int16, int32, int64, float16, float32, float64 or bool.
/// @throws c10::ValueError, one sentence naming the file: also for arrays in Fortran order or in big-endian bytes.
at::Tensor load_npy(const std::string& path);

}  // namespace bie::io
