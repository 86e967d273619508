// Interface between an ISA folder and the driver of mixed_gemm: plain structs and function pointers (tile.h says why).
//
// AVX-512 multiplies float32, AMX three bfloat16 parts of it, or one of bfloat16; the only other kernel is the
// reference. Where the reference would be chosen, and on Intel's CPUs without AMX, src/ops/backend/cpu/output_grad.cpp
// takes torch's product.
#pragma once

#include <cstdint>

#include "bie/kernels/mixed_gemm.h"

namespace bie::kernels::cpu {

/// Rows of a in the tile's layout; zeros stand for missing rows and for elements beyond k.
struct MixedSplitArgs {
  const void* a;
  std::int64_t row, column;  ///< elements, as in MixedGemmInput
  int rows;                  ///< 1 .. those of a tile
  std::int64_t k;
  void* out;  ///< 64-byte aligned
};

/// Columns of b in the tile's layout, filled up with zeros likewise.
struct MixedOpenArgs {
  const void* b;
  Dtype dtype;
  std::int64_t stride;  ///< elements from one row of b to the next
  int columns;          ///< 1 .. those of a tile
  std::int64_t k;
  void* out;  ///< 64-byte aligned
};

/// y[r][c] = ((adds ? y[r][c] : 0) + sum of the products of row r and column c) * scale, r < rows, c < columns.
struct MixedTileArgs {
  const void* rows_of_a;
  const void* columns_of_b;
  std::int64_t k;
  int rows, columns;
  float* y;
  std::int64_t y_stride;  ///< elements
  bool adds;
  float scale;
};

/// A tile for a of one dtype.
struct MixedTile {
  int rows, columns;
  int step;              ///< of k
  int a_bytes, b_bytes;  ///< per element
  std::int64_t depth;    ///< of k that is taken at once
  void (*split)(const MixedSplitArgs&);
  void (*open)(const MixedOpenArgs&);
  void (*run)(const MixedTileArgs&);
  // Null where a thread needs no state: before its first run and after its last one.
  void (*enter)() = nullptr;
  void (*leave)() = nullptr;
};

Status run_mixed_gemm(const MixedTile& tile, const GemmShape& shape, const MixedGemmInput& in, float scale, float* y,
                      const Parallel& parallel);

namespace avx512bw {
extern const MixedTile mixed_tile, mixed_tile_of_bf16;
}
namespace amx {
extern const MixedTile mixed_tile, mixed_tile_of_bf16;
}

}  // namespace bie::kernels::cpu
