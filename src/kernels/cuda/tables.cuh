// Predicates and cost estimates shared by the GEMM and the convolution tables.
//
// All kernels of a table read one panel layout, so that any can stand in for another and panels need no header. Most
// calls are two launches: encode.cuh turns activations into rows of codes (codes.cuh has the four formats), and a
// product (product.cuh) multiplies, scales and writes. gemv.cuh and the convolutions in one pass (halo, line, pixel and
// grouped tiles) do both in one launch. mma_tile.cuh, wgmma_tile.cuh and portable_tile.cuh read their rows from a
// source (tile_args.cuh): a matrix, or the windows of an image.
#pragma once

#include <iterator>

#include "kernels/check.h"
#include "kernels/cuda/encode.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"
#include "kernels/cuda/tiles.cuh"

namespace bie::kernels::cuda {

// Defined in mma_tile.cuh, wgmma_tile.cuh and portable_tile.cuh, instantiated one per file in instances/.
template <class Product, class Shape, class Source>
Status launch_mma(const TileArgs<Source>& args, const Queue& queue);
template <class Product, class Shape, class Source>
Status launch_wgmma(const TileArgs<Source>& args, const Queue& queue);
template <class Product, class Source>
Status launch_portable(const TileArgs<Source>& args, const Queue& queue);

/// max_sm of a kernel that later GPUs run too.
constexpr int newest_sm = 999;

/// Most rows of a product: a tile may reach beyond the last one.
constexpr std::int64_t most_rows = INT32_MAX - 256;

template <class Shape>
std::int64_t wgmma_tiles(const GemmShape& s) {
  const std::int64_t lefts = Shape::weight_left ? s.n : s.m, rights = Shape::weight_left ? s.m : s.n;
  return (lefts + Shape::left - 1) / Shape::left * ((rights + Shape::right - 1) / Shape::right);
}
/// Estimated cost of a wgmma tile: a block's time goes into loading one step of its rows, once per wave.
template <class Shape>
std::int64_t wgmma_cost(const GemmShape& s, const Gpu& gpu) {
  return (wgmma_tiles<Shape>(s) + gpu.multiprocessors - 1) / gpu.multiprocessors * (Shape::left + Shape::right);
}
/// Estimated cost for windows of a convolution. A large tile pays only with two waves of blocks: depths are short, so
/// that it matters that some blocks write while others multiply (times of every kernel in ResNet's shapes,
/// docs/measured/gpu-conv2d.md).
template <class Shape>
std::int64_t wgmma_window_cost(const GemmShape& s, const Gpu& gpu) {
  constexpr bool large = Shape::left * Shape::right > 128 * 128;
  return large && wgmma_tiles<Shape>(s) < 2 * gpu.multiprocessors ? INT64_MAX : wgmma_cost<Shape>(s, gpu);
}
/// The tiles of a table, of which the cheapest suits; of equals the first kernel.
template <class... All>
struct WgmmaTiles {
  template <class Shape>
  static bool cheapest(const GemmShape& s, const Gpu& gpu) {
    return ((wgmma_cost<Shape>(s, gpu) <= wgmma_cost<All>(s, gpu)) && ...);
  }
  template <class Shape>
  static bool cheapest_of_windows(const Conv2dShape& s, const Gpu& gpu) {
    const GemmShape product{s.batch * s.out_h() * s.out_w(), s.out_c, s.depth()};
    return ((wgmma_window_cost<Shape>(product, gpu) <= wgmma_window_cost<All>(product, gpu)) && ...);
  }
};

}  // namespace bie::kernels::cuda
