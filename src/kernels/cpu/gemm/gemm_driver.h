// The GEMM around a tile: encodes the rows of x once, then walks blocks of rows x panels and calls the tile for each.
// Plain code.
//
// While a tile multiplies, the driver prefetches the next panel and the output's lines. A tile of few rows takes
// several neighbouring panels in one call.
#pragma once

#include "bie/kernels/gemm.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

Status run_gemm(const Tile& tile, const Width& width, const GemmShape& shape, const GemmInput& x, const void* packed,
                const GemmOutput& y, const Parallel& parallel);

/// A kernel for a tile.
template <const Tile& tile, const Width& width>
constexpr GemmKernel gemm_kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          [](std::int64_t n, std::int64_t k) { return PanelLayout(tile, n, k, 1).bytes(); },
          [](const void* weight, std::int64_t n, std::int64_t k, void* packed, const Parallel& parallel) {
            pack_panels(tile, width, weight, n, k, 1, 1, false, packed, parallel);
          },
          [](const GemmShape& shape, const GemmInput& x, const void* packed, const GemmOutput& y,
             const Parallel& parallel) { return run_gemm(tile, width, shape, x, packed, y, parallel); }};
}

/// A kernel of two tiles with the same panels: `few` multiplies less than `least` rows.
template <const Tile& tile, const Tile& few, const Width& width, std::int64_t least>
constexpr GemmKernel gemm_kernel_of_two(const char* name, Isa isa) {
  GemmKernel kernel = gemm_kernel<few, width>(name, isa);
  kernel.run = [](const GemmShape& shape, const GemmInput& x, const void* packed, const GemmOutput& y,
                  const Parallel& parallel) {
    return run_gemm(shape.m < least ? few : tile, width, shape, x, packed, y, parallel);
  };
  return kernel;
}

}  // namespace bie::kernels::cpu
