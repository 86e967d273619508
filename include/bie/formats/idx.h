// IDX files, the format of MNIST: 00 00 08 rank, big-endian 32-bit sizes, then the bytes in row-major order.
// Source: "THE IDX FILE FORMAT" on the page of the MNIST database (LeCun, Cortes, Burges).
#pragma once

#include <string>

#include "bie/formats/array.h"

namespace bie::formats {

/// A uint8 array of rank 1 (labels) or 3 (images), from a plain or a gzip file.
/// Memory grows with what the file holds, not with what its header claims.
/// @throws Error, one sentence naming the file.
Array load_idx(const std::string& path);

}  // namespace bie::formats
