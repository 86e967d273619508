// What the rows of the GEMM and of the convolution tables share.
#pragma once

#include "kernels/check.h"
#include "kernels/cuda/encode.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"
#include "kernels/cuda/tiles.cuh"

namespace bie::kernels::cuda {

// Defined in mma_tile.cuh, wgmma_tile.cuh and portable_tile.cuh, instantiated one a file in instances/.
template <class Product, class Shape, class Source>
Status launch_mma(const TileArgs<Source>& args, const Queue& queue);
template <class Product, class Shape>
Status launch_wgmma(const TileArgs<MatrixRows>& args, const Queue& queue);
template <class Product, class Source>
Status launch_portable(const TileArgs<Source>& args, const Queue& queue);

/// max_sm of a row that later GPUs run too.
constexpr int newest_sm = 999;

/// Most rows of a product: a tile may reach beyond the last one.
constexpr std::int64_t most_rows = INT32_MAX - 256;

}  // namespace bie::kernels::cuda
