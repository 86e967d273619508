// The kernels of the convolution tables that quantise in the launch of the product: how an image is cut into tiles, and
// which convolutions that suits.
#pragma once

#include <algorithm>
#include <numeric>

#include "kernels/cuda/conv2d_kernels.cuh"

namespace bie::kernels::cuda {

/// An image cut into tiles of output pixels: `images` whole ones, or `h` x `w` of one. Their windows read halo_h x
/// halo_w input pixels of each image; where the kernel is one tap wide those between the windows do not count.
struct Cut {
  int images = 0, h = 0, w = 0;
  int halo_h = 0, halo_w = 0, halo_pixels = 0;
  int pitch = 0;  ///< bytes from one pixel's codes to the next: an odd number of chunks, so that eight neighbours are
                  ///< read without a bank conflict
  int down = 0, across = 0, tiles = 0;

  constexpr int image_bytes() const { return halo_pixels * pitch; }
};

struct HaloArgs {
  const char* x;
  const float* bias;
  Scalar scale;
  float eps;
  Range range;
  Dtype dtype;
  bool pixels_first;  ///< channels are neighbours
  bool whole;         ///< and eight of them can be read at once
  bool whole_bias;    ///< four of the bias can be read at once
  bool paired;        ///< half of a chunk is the right neighbour's
  bool plane_pairs;   ///< NCHW only: pairs of neighbours, the first even, can be read at once, and written
  int batch, in_c, in_h, in_w, out_h, out_w, kernel_h, kernel_w;
  int stride_h, stride_w, dil_h, dil_w;  ///< in pixels of the tile
  int gap_h, gap_w;                      ///< input pixels from one of the tile to the next
  int pad_h, pad_w;
  int pixel_chunks, groups;  ///< per pixel; groups of eight channels to write
  int pixel_bits;            ///< 1 << pixel_bits threads read a pixel together, two groups each
  Cut cut;
  int split;                 ///< where windows begin at even columns: odd ones lie so far behind the even, else 0
  int tiles_on;              ///< from one tile of a block to its next
  int image_on, y_on, x_on;  ///< the same of its place
  const char* panels;
  std::int64_t panel_stride;
  int panel_chunks;
  int chunks;                                                      ///< per window, in whole stages
  int ring;                                                        ///< stages of panels in shared memory
  int image_at, spots_at, offsets_at, taps_at, ones_at, least_at;  ///< places in shared memory; least_at may be 0
  int pixels_at;                                                   ///< of a pipeline
  int n, k;
  Results y;
  const int* panel_ones;
  Flags panel_flags;
  int* flags;  ///< one per block, or null where nobody asks
};

/// Pairs of columns that cover a line of so many, at any alignment.
constexpr int pairs_of_line(int columns) { return columns / 2 + 1; }

/// Chooses the number of blocks, of which a multiprocessor holds `resident` at once, so that all have equally many
/// tiles.
inline std::int64_t spread_tiles(HaloArgs* p, std::int64_t columns, std::int64_t resident, int multiprocessors) {
  const std::int64_t across = (p->n + columns - 1) / columns;
  const std::int64_t most =
      std::max<std::int64_t>(1, std::min<std::int64_t>(most_flags, resident * multiprocessors) / across);
  const std::int64_t rounds = (p->cut.tiles + most - 1) / most;
  p->tiles_on = static_cast<int>((p->cut.tiles + rounds - 1) / rounds);
  p->x_on = p->tiles_on % p->cut.across * p->cut.w;
  p->y_on = p->tiles_on / p->cut.across % p->cut.down * p->cut.h;
  p->image_on = p->tiles_on / p->cut.across / p->cut.down * p->cut.images;
  return p->tiles_on * across;
}

/// Defined in halo_tile.cuh and halo_pipeline.cuh, instantiated one per file in instances/. `flags` has room for
/// most_flags.
template <class Product, class Shape>
Status launch_halo(HaloArgs args, int* flags, const Queue& queue);
template <class Product, class Shape>
Status launch_halo_pipeline(HaloArgs args, int* flags, const Queue& queue);

constexpr std::int64_t shared_of_multiprocessor = 224 << 10;  // of sm_90; smaller ones hold fewer blocks
constexpr std::int64_t shared_of_block = 98 << 10;            // of every GPU from sm_80 on, less a kernel's own
// An image, a ring of panels and the tables of pixels and chunks fit it; where panels that stay from tile to tile do
// not fit too, they come anew for each tile.
constexpr std::int64_t most_halo_bytes = 40 << 10, most_resident_bytes = 40 << 10;
constexpr std::int64_t most_halo_pixels = 2048, most_chunks = 1024;
constexpr std::int64_t most_least = 1024;  // channels with a bias of their own in a table of halves

/// Bytes from one pixel's codes to the next.
template <class Product>
std::int64_t pixel_pitch(const Conv2dShape& s) {
  return (row_chunks(Product::a_format, s.in_c) | 1) * chunk_bytes;
}

/// The cheapest cut into tiles of at most `rows` output pixels that read at most `most_pixels`; no tiles where none
/// fits.
template <class Product>
Cut cut_image(const Conv2dShape& s, ImageLayout layout, std::int64_t rows, std::int64_t most_pixels) {
  constexpr std::int64_t most_across = 32, sector_pixels = 16, most_side = 4096;  // twelve bits each
  const std::int64_t out_h = s.out_h(), out_w = s.out_w();
  const std::int64_t pitch = pixel_pitch<Product>(s);
  const std::int64_t step_h = s.kernel_h == 1 ? 1 : s.stride_h, step_w = s.kernel_w == 1 ? 1 : s.stride_w;
  Cut best;
  std::int64_t least = INT64_MAX;
  const std::int64_t fewest = (out_w + rows - 1) / rows;
  for (std::int64_t across = fewest; across <= std::min(out_w, fewest + most_across); ++across) {
    const std::int64_t w = (out_w + across - 1) / across, down = (out_h + rows / w - 1) / (rows / w),
                       h = (out_h + down - 1) / down;
    const std::int64_t images = down == 1 && across == 1 ? std::min(s.batch, rows / (h * w)) : 1;
    const std::int64_t halo_h = (h - 1) * step_h + (s.kernel_h - 1) * s.dil_h + 1,
                       halo_w = (w - 1) * step_w + (s.kernel_w - 1) * s.dil_w + 1;
    if (halo_h >= most_side || halo_w >= most_side) continue;
    const std::int64_t pixels = images * halo_h * halo_w;
    const std::int64_t tiles = (s.batch + images - 1) / images * down * across;
    if (pixels > most_pixels || tiles > INT32_MAX) continue;
    // Lines of a plane are fetched in sectors, and written in them where the tile is whole lines; codes of more than a
    // bit take so long to make that the smallest halo is the fastest all the same.
    const bool planes = layout == ImageLayout::nchw;
    const std::int64_t fetched = planes ? images * halo_h * ((halo_w - 2) / sector_pixels + 2) * sector_pixels : pixels;
    const bool whole_sectors = !planes || (across == 1 && h * w % 8 == 0);
    const std::int64_t written = Product::counts && !whole_sectors ? 2 * rows : rows;
    const std::int64_t cost = tiles * (written + fetched);
    if (cost >= least) continue;
    least = cost;
    const auto cut = cut_to_int;
    best = {cut(images), cut(h),     cut(w),    cut(halo_h), cut(halo_w),
            cut(pixels), cut(pitch), cut(down), cut(across), cut(tiles)};
  }
  return best;
}

/// The cheapest cut if a ring of panels and tables share shared memory with the codes of one tile.
template <class Product, class Shape>
Cut cut_image(const Conv2dShape& s, ImageLayout layout) {
  return cut_image<Product>(s, layout, Shape::rows,
                            std::min(most_halo_pixels, most_halo_bytes / pixel_pitch<Product>(s)));
}

/// Whether the kernel computes it: one group, and a tile of it fits shared memory.
template <class Product, class Shape>
bool has_halo(const Conv2dShape& s) {
  return s.groups == 1 && s.in_c > 0 && s.batch * s.in_h * s.in_w > 0 && s.batch * s.out_h() * s.out_w() > 0 &&
         s.taps() * row_chunks(Product::a_format, s.in_c) <= most_chunks &&
         (s.out_c + Shape::columns - 1) / Shape::columns <= most_flags / 16 &&
         cut_image<Product, Shape>(s, ImageLayout::nhwc).tiles > 0;
}

/// Whether this kernel is the fastest for the convolution, by measured times (docs/measured/gpu-conv2d.md). Signs: up
/// to 256 channels in and out, beyond which too many tiles of columns quantise the same halo; more if there is no halo
/// or most pixels are unused. Codes: if pixels have few channels or most are unused; with a stride, whose halo is
/// large, up to 128 output channels if eight channels are read at once.
template <class Product, class Shape>
bool suits_halo(const Conv2dShape& s, const Image& x, const Gpu& gpu) {
  constexpr std::int64_t few = 64, least = Product::a_format == Format::wide ? 32 : 1;  // of 4 bits 32 are a pixel
  const bool strides = s.stride_h * s.stride_w > 1, skips = s.taps() == 1 && strides;
  const bool of_bits = skips ? s.in_c <= 4 * few : s.out_c <= 4 * few && (s.taps() == 1 || s.in_c <= 4 * few);
  const std::int64_t most_out = strides && x.layout == ImageLayout::nhwc ? 2 * few : few;
  const bool suits = Product::counts ? of_bits : skips || (s.in_c <= few && s.out_c <= most_out);
  const std::int64_t tiles = (s.batch * s.out_h() * s.out_w() + Shape::rows - 1) / Shape::rows;
  const bool wide = Shape::columns <= 64 || s.out_c > 64;
  return suits && s.in_c >= least && wide &&
         tiles * ((s.out_c + Shape::columns - 1) / Shape::columns) >= gpu.multiprocessors;
}

// Pipelined kernel: the number of producer threads, how many pairs of groups of eight channels each keeps in flight,
// and the shared memory that these take.
constexpr int pipeline_producers = 384, pipeline_depth = 4;
constexpr std::int64_t pipeline_pixel_bytes = std::int64_t{pipeline_producers} * pipeline_depth * 32;

/// The cut of a pipeline: panels as bytes, the codes of two tiles, tables and pixels on their way lie in shared memory.
template <class Product, class Shape>
Cut cut_for_pipeline(const Conv2dShape& s) {
  const std::int64_t chunks = s.taps() * row_chunks(Product::a_format, s.in_c), blocks = (chunks + 7) / 8;
  // Rows' spots up to the panels, and offsets of chunks; of a pixel its spot.
  const std::int64_t tables = (4 * Shape::rows + 1023) / 1024 * 1024 + 32 * blocks + 16;
  const std::int64_t left = most_hopper_shared - pipeline_pixel_bytes - blocks * 128 * Shape::columns - tables;
  const std::int64_t most = std::min(most_halo_pixels, left / (2 * pixel_pitch<Product>(s) + 4));
  return cut_image<Product>(s, ImageLayout::nhwc, Shape::rows, most);
}

/// Whether the pipeline can compute it: its shared memory fits.
template <class Product, class Shape>
bool has_halo_pipeline(const Conv2dShape& s) {
  return s.groups == 1 && s.in_c > 0 && s.in_c % 16 == 0 && s.out_c % 8 == 0 && has_halo<Product, Shape>(s) &&
         cut_for_pipeline<Product, Shape>(s).tiles > 0;
}

/// Whether the pipeline is the fastest for the convolution, by measured times (docs/measured/gpu-conv2d.md): all
/// outputs are of one block, so that each halo is quantised once, pixels have few enough channels, and half of the
/// multiprocessors have a tile.
template <class Product, class Shape>
bool suits_halo_pipeline(const Conv2dShape& s, const Image&, const Gpu& gpu) {
  constexpr std::int64_t few = 64;
  constexpr bool narrow = Shape::columns <= few;
  const std::int64_t tiles = (s.batch * s.out_h() * s.out_w() + Shape::rows - 1) / Shape::rows;
  const bool one_block = s.out_c <= Shape::columns && (narrow || s.out_c > few);
  return one_block && s.taps() > 1 && s.in_c >= few / 2 && s.in_c <= (narrow ? 2 * few : few) &&
         2 * tiles > gpu.multiprocessors;
}

/// Fills the arguments of the halo kernels, except those that the launch decides.
template <class Product>
HaloArgs halo_args(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y,
                   const Cut& image) {
  constexpr Format format = Product::a_format;
  const bool pixels_first = x.layout == ImageLayout::nhwc || s.in_h * s.in_w == 1;
  const auto cut = cut_to_int;
  HaloArgs p{};
  p.x = static_cast<const char*>(x.data);
  p.bias = x.bias;
  p.scale = x.scale;
  p.eps = x.eps;
  p.range = format == Format::wide ? range_s4 : range_s8;
  p.dtype = x.dtype;
  p.pixels_first = pixels_first;
  p.whole = pixels_first && s.in_c % 8 == 0 && aligned(x.data, 0, 16);
  p.whole_bias = aligned(x.bias, 0, 16);
  p.paired = format == Format::bits && s.in_c <= 64;
  p.batch = cut(s.batch), p.in_c = cut(s.in_c), p.in_h = cut(s.in_h), p.in_w = cut(s.in_w);
  p.out_h = cut(s.out_h()), p.out_w = cut(s.out_w()), p.kernel_h = cut(s.kernel_h), p.kernel_w = cut(s.kernel_w);
  p.stride_h = s.kernel_h == 1 ? 1 : cut(s.stride_h), p.gap_h = s.kernel_h == 1 ? cut(s.stride_h) : 1;
  p.stride_w = s.kernel_w == 1 ? 1 : cut(s.stride_w), p.gap_w = s.kernel_w == 1 ? cut(s.stride_w) : 1;
  p.dil_h = cut(s.dil_h), p.dil_w = cut(s.dil_w), p.pad_h = cut(s.pad_h), p.pad_w = cut(s.pad_w);
  p.pixel_chunks = cut(row_chunks(format, s.in_c));
  constexpr int chunk_groups = format == Format::bits ? 16 : 2;
  p.groups = p.paired ? 8 : p.pixel_chunks * chunk_groups;
  while (p.pixel_bits < 5 && 4 << p.pixel_bits <= p.groups) ++p.pixel_bits;
  p.cut = image;
  p.panels = static_cast<const char*>(panels.data);
  p.panel_stride = panel_stride<Product>(s);
  p.panel_chunks = p.paired ? cut(s.kernel_h * ((s.kernel_w + 1) / 2)) : cut(panel_stride<Product>(s) / chunk_bytes);
  p.n = cut(s.out_c);
  p.k = cut(s.depth());
  p.y = results_of(s, y);
  // Pixels of a tile lie side by side in whole lines of the image, or within a line.
  const int side = p.cut.w == p.out_w ? p.cut.h * p.cut.w : std::gcd(p.cut.w, p.out_w);
  if (p.y.plane_run != 0 && side % p.y.plane_run != 0) p.y.plane_run = side % 2 == 0 ? 2 : 0;
  p.plane_pairs = p.y.plane_run != 0 && y.dtype == x.dtype && !pixels_first && p.in_w % 2 == 0 && p.gap_w == 1 &&
                  aligned(x.data, 0, 4);
  p.panel_ones = panel_ones<Product>(s, panels);
  p.panel_flags = {panels.flags, panels.flag_count};
  // Windows of neighbours are read without a bank conflict where they begin in neighbours.
  if (p.stride_w % 2 == 0 && !p.paired && !p.plane_pairs) p.split = (p.cut.halo_w + 1) / 2;
  return p;
}

template <class Product, class Shape, std::int64_t max_k>
Status run_halo(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y, void* workspace,
                const Queue& queue) {
  const Status checked = check_product<Product>(s, x, y, max_k);
  if (checked != Status::ok) return checked;
  if (s.batch * s.out_h() * s.out_w() == 0 || s.out_c == 0) return Status::ok;
  if (!has_halo<Product, Shape>(s)) return Status::bad_shape;
  const Cut cut = cut_image<Product, Shape>(s, x.layout);
  return launch_halo<Product, Shape>(halo_args<Product>(s, x, panels, y, cut), static_cast<int*>(workspace), queue);
}

template <class Product, class Shape, std::int64_t max_k>
Status run_halo_pipeline(const Conv2dShape& s, const Image& x, const Panels& panels, const Conv2dOutput& y,
                         void* workspace, const Queue& queue) {
  const Status checked = check_product<Product>(s, x, y, max_k);
  if (checked != Status::ok) return checked;
  if (s.batch * s.out_h() * s.out_w() == 0 || s.out_c == 0) return Status::ok;
  if (!has_halo_pipeline<Product, Shape>(s)) return Status::bad_shape;
  if (!takes_halves(x, y)) return Status::bad_dtype;
  const Cut cut = cut_for_pipeline<Product, Shape>(s);
  return launch_halo_pipeline<Product, Shape>(halo_args<Product>(s, x, panels, y, cut), static_cast<int*>(workspace),
                                              queue);
}

}  // namespace bie::kernels::cuda
