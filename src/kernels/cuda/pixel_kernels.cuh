// The kernels of the convolution tables for kernels of one tap: each output pixel is a product of one input pixel,
// which is quantised in registers on its way to the tensor cores. Which convolutions, images and results they take.
#pragma once

#include "kernels/cuda/conv2d_kernels.cuh"

namespace bie::kernels::cuda {

struct PixelArgs {
  CUtensorMap out;
  const char* x;
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  int in_c, in_h, in_w, out_w, plane;  ///< plane: output pixels of an image
  int stride_h, stride_w;
  int rows, tiles;           ///< output pixels, in tiles of 64
  int chunks, steps;         ///< per pixel: a stage's channels; 32 bytes of codes
  int groups, stages;        ///< warpgroups of a block, stages of a ring
  int panel_chunks, blocks;  ///< per panel row: 16 bytes; 128 bytes in shared memory
  const char* panels;
  std::int64_t panel_stride;
  const int* panel_ones;
  Flags panel_flags;
  int n;
  Results y;
  int* flags;  ///< one per block
};

/// Output channels of a block, and as many warpgroups as their sums leave registers for.
template <int columns_>
struct PixelTile {
  static constexpr int columns = columns_, groups = columns == 256 ? 2 : columns == 128 ? 3 : 4;
};

/// Defined in pixel_tile.cuh, instantiated one per file in instances/. `flags` has room for most_flags.
template <class Product, class Tile>
Status launch_pixels(PixelArgs args, int* flags, const Queue& queue);

namespace pixels {

constexpr int tile_rows = 64;
/// Channels whose codes are 32 bytes.
template <class Product>
constexpr int step_channels = Product::counts ? 256 : 32;

constexpr int boxes_bytes = 2 * 64 * 128;  ///< two places of results, a warpgroup's
constexpr int least_stages = 1, most_stages = 4;

/// Pieces of 32 channels in a stage of a warpgroup's ring of pixels.
constexpr int stage_pieces(std::int64_t in_c) { return in_c <= 64 ? 2 : 4; }

/// Shared memory: panels, of bits their ones, and for each warpgroup boxes of results and a ring of pixels.
template <class Product, class Tile>
constexpr std::int64_t shared_bytes(std::int64_t in_c, int groups, int stages) {
  const std::int64_t steps = (in_c + step_channels<Product> - 1) / step_channels<Product>;
  return (steps + 3) / 4 * 128 * Tile::columns + (Product::counts ? 4 * Tile::columns : 0) +
         groups * (boxes_bytes + std::int64_t{stages} * stage_pieces(in_c) * 64 * 64);
}

}  // namespace pixels

/// Accepts one tap without padding whose panels of all channels fit shared memory.
template <class Product, class Tile>
bool has_pixels(const Conv2dShape& s) {
  return s.groups == 1 && s.taps() == 1 && s.pad_h == 0 && s.pad_w == 0 && s.in_c > 0 && s.in_c % 8 == 0 &&
         s.out_c % 8 == 0 &&
         pixels::shared_bytes<Product, Tile>(s.in_c, 1, pixels::least_stages) <= most_hopper_shared &&
         (s.out_c + Tile::columns - 1) / Tile::columns <= most_flags / 16 && s.batch * s.in_h * s.in_w > 0;
}

/// Takes as many output channels at once as there are, because each tile of them quantises the pixels again; fewer
/// where that leaves multiprocessors without work. The panels of a block are arranged anew in each call, which few
/// pixels are not worth: for bytes of any number of channels, for bits of many (times on an H100,
/// docs/measured/gpu-conv2d.md).
template <class Product, class Tile>
bool suits_pixels(const Conv2dShape& s, const Image&, const Gpu& gpu) {
  constexpr std::int64_t many_pixels = 64 * pixels::tile_rows, few_channels = Product::counts ? 256 : 0;
  const std::int64_t pixels = s.batch * s.out_h() * s.out_w();
  if (pixels < many_pixels && s.in_c > few_channels) return false;
  const std::int64_t across = (s.out_c + Tile::columns - 1) / Tile::columns;
  const std::int64_t tiles = (pixels + pixels::tile_rows - 1) / pixels::tile_rows * across;
  return Tile::columns == 64 || (s.out_c > Tile::columns / 2 && tiles >= gpu.multiprocessors);
}

template <class Product, class Tile, std::int64_t max_k>
Status run_pixels(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, void* workspace,
                  const Queue& queue) {
  const Status checked = check_product<Product>(s, x, y, max_k);
  if (checked != Status::ok) return checked;
  if (s.batch * s.out_h() * s.out_w() == 0 || s.out_c == 0) return Status::ok;
  if (!has_pixels<Product, Tile>(s)) return Status::bad_shape;
  if (!takes_halves(x, y)) return Status::bad_dtype;
  const auto cut = cut_to_int;
  constexpr int step = pixels::step_channels<Product>;
  PixelArgs p{};
  p.x = static_cast<const char*>(x.data);
  p.bias = x.bias;
  p.scale = x.scale;
  p.eps = x.eps;
  p.range = Product::a_format == Format::wide ? range_s4 : range_s8;
  p.in_c = cut(s.in_c), p.in_h = cut(s.in_h), p.in_w = cut(s.in_w);
  p.out_w = cut(s.out_w()), p.plane = cut(s.out_h() * s.out_w());
  p.stride_h = cut(s.stride_h), p.stride_w = cut(s.stride_w);
  p.rows = cut(s.batch * s.out_h() * s.out_w());
  p.tiles = (p.rows + pixels::tile_rows - 1) / pixels::tile_rows;
  p.chunks = (p.in_c + 127) / 128;  // of 64 there is one too
  p.steps = (p.in_c + step - 1) / step;
  p.blocks = (p.steps + 3) / 4;
  p.panels = static_cast<const char*>(panels.data);
  p.panel_stride = panel_stride<Product>(s);
  p.panel_chunks = cut(p.panel_stride / chunk_bytes);
  p.panel_ones = panel_ones<Product>(s, panels);
  p.panel_flags = {panels.flags, panels.flag_count};
  p.n = cut(s.out_c);
  p.y = results_of(s, y);
  return launch_pixels<Product, Tile>(p, static_cast<int*>(workspace), queue);
}

}  // namespace bie::kernels::cuda
