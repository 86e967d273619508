// Descriptions of matrices for the tensor memory accelerator.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "bie/kernels/status.h"

namespace bie::kernels::cuda {

struct Box {
  int columns, rows;
};

/// `rows` rows of `columns` elements of `bytes` bytes, `stride` bytes apart, moved in boxes of at most 128 bytes a row.
/// Data and stride are multiples of 16 bytes. In shared memory the 16-byte chunks of a box row stand in the order of
/// the swizzle as wide as the row, 64 or 128 bytes.
Status make_tensor_map(const void* data, std::int64_t rows, std::int64_t columns, int bytes, std::int64_t stride,
                       Box box, CUtensorMap* map);

}  // namespace bie::kernels::cuda
