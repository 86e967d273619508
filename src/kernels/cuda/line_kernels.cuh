// The kernels of the convolution tables for few channels: what a window reads of a line is one step of the product,
// where pixels alone would be mostly padding. Which convolutions they compute.
#pragma once

#include "kernels/cuda/conv2d_kernels.cuh"

namespace bie::kernels::cuda {

struct LineArgs {
  const char* x;
  Dtype dtype;
  bool pixels_first;  ///< channels are neighbours
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  int batch, in_c, in_h, in_w, out_h, out_w, kernel_h, kernel_w;
  int stride_h, stride_w, pad_h, pad_w, dil_h;
  int lines, elements, pitch;  ///< that a tile reads: lines, of so many elements, their codes so many bytes apart
  int runs, run_elements;      ///< of a line in memory: one, or of planes one per channel; elements of each
  int run_chunks;              ///< pieces of 16 bytes that hold a run wherever it begins
  std::int64_t bytes;          ///< of all images
  int across, down, tiles;
  const char* panels;
  std::int64_t panel_stride;
  int tap_bytes;  ///< per panel row
  const int* panel_ones;
  Flags panel_flags;
  int n, k;
  Results y;
  int* flags;  ///< one per block
};

/// Defined in line_tile.cuh, instantiated one per file in instances/. `flags` has room for most_flags.
template <class Product>
Status launch_lines(LineArgs args, int* flags, const Queue& queue);

namespace lines {

constexpr int side = 16, columns = 64;         ///< a tile is side x side output pixels by so many channels
constexpr int window = 32;                     ///< most elements that a window reads of a line
constexpr int most_steps = 16;                 ///< kernel lines; of bits eight are one step
constexpr std::int64_t most_bytes = 32 << 10;  ///< of codes, and of each of two places for what they are made of

/// Bytes of a line's codes: a window is read in whole words from where it begins.
template <class Product>
constexpr std::int64_t pitch_of(std::int64_t stride_w, std::int64_t in_c) {
  const std::int64_t last = (side - 1) * stride_w * in_c;
  return Product::counts ? (last / 32 + 2) * 4 : (last + window + 4 + 3) / 4 * 4;
}
/// Upper bound on 16-byte chunks per line: float32 is the widest type, and in NCHW a channel's row may start unaligned.
constexpr std::int64_t most_chunks_of(const Conv2dShape& s) {
  return (((side - 1) * s.stride_w + s.kernel_w) * 4 / 16 + 2) * s.in_c;
}
constexpr std::int64_t lines_of(const Conv2dShape& s) {
  return (side - 1) * s.stride_h + (s.kernel_h - 1) * s.dil_h + 1;
}

}  // namespace lines

/// Accepts several taps per line whose channels are at most 32 elements, if a tile's lines fit shared memory.
template <class Product>
bool has_lines(const Conv2dShape& s) {
  return s.groups == 1 && s.in_c > 0 && s.dil_w == 1 && s.kernel_w > 1 && s.kernel_w * s.in_c <= lines::window &&
         s.kernel_h <= (Product::counts ? 8 : lines::most_steps) && s.stride_w <= 64 && s.stride_h <= 64 &&
         s.dil_h <= 64 && lines::lines_of(s) * lines::pitch_of<Product>(s.stride_w, s.in_c) <= lines::most_bytes &&
         lines::lines_of(s) * lines::most_chunks_of(s) * 16 <= lines::most_bytes && s.batch * s.in_h * s.in_w > 0 &&
         (s.out_c + lines::columns - 1) / lines::columns <= most_flags / 16;
}

/// Signs: always. Codes: only if there are at least two tiles per multiprocessor, because each block rearranges its
/// panels, which does not pay for few tiles.
template <class Product>
bool suits_lines(const Conv2dShape& s, const Image&, const Gpu& gpu) {
  const auto tiles = [](std::int64_t size, std::int64_t side) { return (size + side - 1) / side; };
  return Product::counts ||
         s.batch * tiles(s.out_h(), lines::side) * tiles(s.out_w(), lines::side) * tiles(s.out_c, lines::columns) >=
             2 * gpu.multiprocessors;
}

inline bool takes_lines(const Image& x, const Conv2dOutput&) { return aligned(x.data, 0, 16); }

template <class Product, std::int64_t max_k>
Status run_lines(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, void* workspace,
                 const Queue& queue) {
  const Status checked = check_product<Product>(s, x, y, max_k);
  if (checked != Status::ok) return checked;
  if (s.batch * s.out_h() * s.out_w() == 0 || s.out_c == 0) return Status::ok;
  if (!has_lines<Product>(s)) return Status::bad_shape;
  if (!takes_lines(x, y)) return Status::bad_dtype;
  const auto cut = cut_to_int;
  LineArgs p{};
  p.x = static_cast<const char*>(x.data);
  p.dtype = x.dtype;
  p.pixels_first = x.layout == ImageLayout::nhwc;
  p.bias = x.bias;
  p.scale = x.scale;
  p.eps = x.eps;
  p.range = Product::a_format == Format::wide ? range_s4 : range_s8;
  p.batch = cut(s.batch), p.in_c = cut(s.in_c), p.in_h = cut(s.in_h), p.in_w = cut(s.in_w);
  p.out_h = cut(s.out_h()), p.out_w = cut(s.out_w()), p.kernel_h = cut(s.kernel_h), p.kernel_w = cut(s.kernel_w);
  p.stride_h = cut(s.stride_h), p.stride_w = cut(s.stride_w), p.pad_h = cut(s.pad_h), p.pad_w = cut(s.pad_w);
  p.dil_h = cut(s.dil_h);
  p.lines = cut(lines::lines_of(s));
  p.elements = cut(((lines::side - 1) * s.stride_w + s.kernel_w) * s.in_c);
  const std::int64_t size = row_bytes(x.dtype, 1);
  p.runs = p.pixels_first ? 1 : p.in_c;
  p.run_elements = p.elements / p.runs;
  p.run_chunks = cut((p.run_elements * size + 15 + 15) / 16);
  p.bytes = s.batch * s.in_c * s.in_h * s.in_w * size;
  p.pitch = cut(lines::pitch_of<Product>(s.stride_w, s.in_c));
  p.across = (p.out_w + lines::side - 1) / lines::side;
  p.down = (p.out_h + lines::side - 1) / lines::side;
  const std::int64_t tiles = s.batch * p.across * p.down;
  if (tiles > INT32_MAX / 2) return Status::bad_shape;
  p.tiles = cut(tiles);
  p.panels = static_cast<const char*>(panels.data);
  p.panel_stride = panel_stride<Product>(s);
  p.tap_bytes = cut(row_chunks(Product::b_format, s.in_c) * chunk_bytes);
  p.panel_ones = panel_ones<Product>(s, panels);
  p.panel_flags = {panels.flags, panels.flag_count};
  p.n = cut(s.out_c);
  p.k = cut(s.depth());
  p.y = results_of(s, y);
  // Neighbours of a plane are neighbours of a line.
  if (p.y.plane_run != 0 && p.out_w % p.y.plane_run != 0) p.y.plane_run = p.out_w % 2 == 0 ? 2 : 0;
  return launch_lines<Product>(p, static_cast<int*>(workspace), queue);
}

}  // namespace bie::kernels::cuda
