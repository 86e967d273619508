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
template <class Product, class Shape, class Source>
Status launch_wgmma(const TileArgs<Source>& args, const Queue& queue);
template <class Product, class Source>
Status launch_portable(const TileArgs<Source>& args, const Queue& queue);

/// max_sm of a row that later GPUs run too.
constexpr int newest_sm = 999;

/// Most rows of a product: a tile may reach beyond the last one.
constexpr std::int64_t most_rows = INT32_MAX - 256;

/// What a tile of wgmma costs: a block's time goes into loading a step of its rows, in as many waves as it takes. A row
/// of the activation costs as much as so many rows of the weight.
template <class Shape>
std::int64_t wgmma_cost(const GemmShape& s, const Gpu& gpu, int activation_row) {
  const std::int64_t lefts = Shape::weight_left ? s.n : s.m, rights = Shape::weight_left ? s.m : s.n;
  const std::int64_t tiles = (lefts + Shape::left - 1) / Shape::left * ((rights + Shape::right - 1) / Shape::right);
  constexpr int activations = Shape::weight_left ? Shape::right : Shape::left;
  return (tiles + gpu.multiprocessors - 1) / gpu.multiprocessors *
         (Shape::left + Shape::right + (activation_row - 1) * activations);
}
/// The tiles of a table, of which the cheapest suits; of equals the first row.
template <class... All>
struct WgmmaTiles {
  template <class Shape>
  static bool cheapest(const GemmShape& s, const Gpu& gpu) {
    return ((wgmma_cost<Shape>(s, gpu, 1) <= wgmma_cost<All>(s, gpu, 1)) && ...);
  }
  template <class Shape>
  static bool cheapest_of_windows(const Conv2dShape& s, const Gpu& gpu) {
    constexpr int window = 3;  // the TMA takes as much longer for one than for a row of a matrix
    const GemmShape product{s.batch * s.out_h() * s.out_w(), s.out_c, s.depth()};
    return ((wgmma_cost<Shape>(product, gpu, window) <= wgmma_cost<All>(product, gpu, window)) && ...);
  }
};

}  // namespace bie::kernels::cuda
