// Sign bits and int4 nibbles: the layouts that lie in checkpoints (sizes need not be multiples of anything).
#pragma once

#include <cstdint>

#include "bie/kernels/dtype.h"
#include "bie/kernels/isa.h"
#include "bie/kernels/parallel.h"
#include "bie/kernels/status.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

struct RowsShape {
  std::int64_t rows, k;
};

/// Bit i of byte j of a packed row is (x[row, 8j+i] + bias[8j+i] >= 0); NaN gives 0; pad bits are 0.
struct SignPackKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const RowsShape&);
  /// x: f32, bf16, f16 or s8 (no bias for s8), rows `row_stride` bytes apart; bias [k] or null; packed [rows,
  /// ceil(k/8)].
  Status (*run)(const RowsShape&, const void* x, Dtype dtype, std::int64_t row_stride, const float* bias,
                std::uint8_t* packed, const Parallel&);
};
Table<SignPackKernel> sign_pack_table();

/// Byte j of a packed row is element 2j (high nibble) and 2j+1 (low nibble), the low four bits of each; pad nibble 0.
struct Int4PackKernel {
  const char* name;
  Isa isa;
  bool (*accepts)(const RowsShape&);
  /// codes [rows, k] int8, packed [rows, ceil(k/2)].
  Status (*run)(const RowsShape&, const std::int8_t* codes, std::uint8_t* packed, const Parallel&);
};
Table<Int4PackKernel> int4_pack_table();

/// signs[row, i] = +1 or -1. packed [rows, ceil(k/8)].
void unpack_signs(const RowsShape&, const std::uint8_t* packed, std::int8_t* signs, const Parallel&);

/// codes[row, i] in [-8, 7]. packed [rows, ceil(k/2)].
void unpack_int4(const RowsShape&, const std::uint8_t* packed, std::int8_t* codes, const Parallel&);

}  // namespace bie::kernels
