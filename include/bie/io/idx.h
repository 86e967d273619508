// IDX files, the format of MNIST: 00 00 08 rank, big-endian 32-bit sizes, then the bytes in row-major order.
// Source: "THE IDX FILE FORMAT" on the page of the MNIST database (LeCun, Cortes, Burges).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace bie::io {

/// A uint8 tensor of rank 1 (labels) or 3 (images), from a plain or a gzip file.
/// Memory grows with what the file holds, not with what its header claims.
/// @throws c10::ValueError, one sentence naming the file.
at::Tensor load_idx(const std::string& path);

}  // namespace bie::io
