// Parts shared by the single-pass convolution blocks: tables, chunks of panels, windows, results. The input pixels of
// an output tile, halo included, are quantised into shared memory (halo_encode.cuh), and the product reads its windows
// there.
//
// A row of the left operand is the window of one output pixel, in chunks of 16 bytes; pixels are `pitch` bytes apart.
// Where a pixel of signs fills only half a chunk, the other half holds its right neighbour, so that a chunk covers two
// taps.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/halo_encode.cuh"
#include "kernels/cuda/mma_tile.cuh"
#include "kernels/cuda/poison.cuh"

namespace bie::kernels::cuda::halo {

/// Tables in shared memory: those of fixed size at the beginning, the others behind the images of codes, at offsets in
/// HaloArgs.
template <class Product, class Shape, int images>
struct Tables {
  // In ints: behind the rows' spots their ones, and those of columns.
  static constexpr int row_ones = Shape::rows, column_ones = 2 * Shape::rows;
  static constexpr int fixed_bytes = 4 * (Product::counts ? column_ones + Shape::columns : Shape::rows);

  /// Sets the offsets in `p` for images that begin at `image`; returns the total bytes.
  static std::int64_t place(HaloArgs* p, std::int64_t image) {
    const std::int64_t spots = image + std::int64_t{images} * p->cut.image_bytes();
    const std::int64_t offsets = spots + 4 * p->cut.halo_pixels, taps = offsets + 4 * p->chunks;
    const std::int64_t pixel_ones = taps + (p->paired ? 4 * p->chunks : 0);
    p->image_at = cut_to_int(image), p->spots_at = cut_to_int(spots), p->offsets_at = cut_to_int(offsets);
    const std::int64_t least = (pixel_ones + (Product::counts ? 4 * p->cut.halo_pixels : 0) + 15) / 16 * 16;
    p->taps_at = cut_to_int(taps), p->ones_at = cut_to_int(pixel_ones);
    const bool has_least = Product::counts && 8 * p->groups <= most_least;
    p->least_at = has_least ? cut_to_int(least) : 0;
    return least + (has_least ? 16 * p->groups : 0);
  }
};

/// Converts and writes results of 16 bits, to pixels of a multiple of eight columns or to planes of pairs.
template <class Product, class Io>
class HalfWriter {
  // A sum with it keeps its low bits: the integer, below 2^22 where bits are counted.
  static constexpr float round_to_whole = 0x1.8p23f;
  static constexpr int bits_of_it = 0x4b400000;

 public:
  using Element = typename Io::Element;
  static constexpr int offset = bits_of_it;

  __device__ HalfWriter(const HaloArgs& p, float scale) : p_(p), scale_(scale) {}
  __device__ Element* row(int r) const {
    Element* const data = static_cast<Element*>(p_.y.data);
    if constexpr (!Io::planes) return data + std::int64_t{r} * p_.n;
    const int image = r / p_.y.plane;
    return data + std::int64_t{image} * (p_.n - 1) * p_.y.plane + r;
  }
  __device__ unsigned word(int first, int second) const {
    return pack_pair(Io::dtype(p_), scaled(first), scaled(second));
  }
  __device__ void put_eight(Element* row, int column, const int (&sums)[8]) const {
    unsigned words[4];
#pragma unroll
    for (int c = 0; c < 8; c += 2) words[c / 2] = word(sums[c], sums[c + 1]);
    if (column < p_.n) *reinterpret_cast<uint4*>(row + column) = make_uint4(words[0], words[1], words[2], words[3]);
  }
  template <class Words>
  __device__ void put_pixels(Element* pixel, int column, const Words& words) const {
    *reinterpret_cast<Words*>(pixel + std::int64_t{column} * p_.y.plane) = words;
  }

 private:
  __device__ float scaled(int sum) const {
    const float whole = Product::counts ? __fsub_rn(__int_as_float(sum), round_to_whole) : static_cast<float>(sum);
    return __fmul_rn(whole, scale_);
  }
  const HaloArgs& p_;
  float scale_;
};

/// State shared by the threads of a block. `images` is the number of tiles whose codes shared memory holds at once.
template <class Product, class Shape, class Io, int images>
class Block {
  using T = Tables<Product, Shape, images>;

 public:
  const HaloArgs& p;
  char* const shared;
  const unsigned base;  ///< its address in the shared window
  // The grid is a multiple of the tiles across: a block keeps its columns.
  const int across, first_column;
  int* const row_spots;  ///< of the output pixels, or -1
  int* const spots;      ///< of the input pixels, or pairs of them
  char* const image;     ///< the first one
  /// Per channel: the smallest fp16 value v with v + bias >= 0, so that a comparison replaces the add. Null if not
  /// used.
  const char* least = nullptr;
  bool knows_signs = false;  ///< halves become signs without a sum with the bias

  __device__ Block(const HaloArgs& args, char* memory)
      : p(args),
        shared(memory),
        base(static_cast<unsigned>(__cvta_generic_to_shared(memory))),
        across((args.n + Shape::columns - 1) / Shape::columns),
        first_column(static_cast<int>(blockIdx.x) % across * Shape::columns),
        row_spots(reinterpret_cast<int*>(memory)),
        spots(reinterpret_cast<int*>(memory + args.spots_at)),
        image(memory + args.image_at) {}

  /// Fills the tables. Called by all threads; the tables are visible after the next barrier.
  __device__ void fill_tables() {
    const int threads = blockDim.x;
    for (int q = threadIdx.x; q < p.chunks; q += threads) {
      const int parts = p.paired ? 1 : p.pixel_chunks, wide = p.paired ? (p.kernel_w + 1) / 2 : p.kernel_w;
      const int tap = q / parts, i = tap / wide, j = tap % wide * (p.paired ? 2 : 1);
      const bool real = i < p.kernel_h;
      offsets()[q] = real ? tap_pixel(i, j) * p.cut.pitch + q % parts * 16 : 0;
      if (p.paired) taps()[q] = 2 * (i * p.kernel_w + j) + (j + 1 < p.kernel_w);
    }
    if constexpr (Product::counts && Io::halves) {
      if (p.bias != nullptr && p.least_at != 0) {
        bool tame = true;  // no bias is so large that a sum with it may overflow
        auto* const bounds = reinterpret_cast<typename Io::Element*>(shared + p.least_at);
        for (int c = threadIdx.x; c < 8 * p.groups; c += threads) {
          const float bias = c < p.in_c ? p.bias[c] : 0;
          tame = tame && fabsf(bias) < 0x1p100f;
          bounds[c] = Io::rounded_up(-bias);
        }
        if (__syncthreads_and(tame) != 0) least = shared + p.least_at;
      }
    }
    knows_signs = Io::halves && (p.bias == nullptr || least != nullptr || !Product::counts);
    const int line = Io::planes && knows_signs ? pairs_of_line(p.cut.halo_w) : p.cut.halo_w;
    for (int r = threadIdx.x; r < p.cut.images * p.cut.halo_h * line; r += threads) {
      const int plane = p.cut.halo_h * line, rest = r % plane;
      const int at = rest % line, column = p.split == 0 ? at : at < p.split ? 2 * at : 2 * (at - p.split) + 1;
      spots[r] = pack_spot(r / plane, rest / line, column);
    }
    for (int r = threadIdx.x; r < Shape::rows; r += threads) {
      const int plane = p.cut.h * p.cut.w, rest = r % plane;
      row_spots[r] = r / plane < p.cut.images ? pack_spot(r / plane, rest / p.cut.w, rest % p.cut.w) : -1;
    }
    if constexpr (Product::counts) {
      for (int c = threadIdx.x; c < Shape::columns; c += threads)
        row_spots[T::column_ones + c] = first_column + c < p.n ? p.panel_ones[first_column + c] : 0;
    }
  }

  /// Starts copying a chunk of a column's panel row; zeros if there is none.
  __device__ void copy_panel(unsigned to, int column, int chunk) const {
    const bool inside = first_column + column < p.n && chunk < p.panel_chunks;
    const char* const row = p.panels + (inside ? first_column + column : 0) * p.panel_stride;
    if (Product::a_format == Format::bits && p.paired) {
      const int tap = inside ? taps()[chunk] : 0;  // twice the first one, and one more where there is a second
      copy_half(to, row + tap / 2 * chunk_bytes, inside);
      copy_half(to + 8, row + (tap / 2 + tap % 2) * chunk_bytes, inside && tap % 2 != 0);
    } else {
      copy_chunk(to, row + (inside ? chunk : 0) * chunk_bytes, inside);
    }
  }

  /// 1-bit only: popcount of each window. Called by all threads; synchronises on entry and exit.
  __device__ void count_ones() const {
    static_assert(images == 1);
    int* const pixel_ones = reinterpret_cast<int*>(shared + p.ones_at);
#pragma unroll 1
    for (int i = threadIdx.x; i < p.cut.halo_pixels; i += Shape::threads) {
      int ones = 0;
      for (int part = 0; part < p.pixel_chunks; ++part) {
        const uint4 chunk = *reinterpret_cast<const uint4*>(image + i * p.cut.pitch + 16 * part);
        ones += p.paired ? __popc(chunk.x) + __popc(chunk.y) : ones_of(chunk);
      }
      pixel_ones[i] = ones;
    }
    __syncthreads();
#pragma unroll 1
    for (int r = threadIdx.x; r < Shape::rows; r += Shape::threads) {
      const int* const first = pixel_ones + first_pixel(r);
      int ones = 0;
#pragma unroll 1
      for (int i = 0; i < p.kernel_h; ++i)
        for (int j = 0; j < p.kernel_w; ++j) ones += first[tap_pixel(i, j)];
      row_spots[T::row_ones + r] = ones;
    }
  }

  /// Offsets of a window's chunks from its first pixel.
  __device__ int* offsets() const { return reinterpret_cast<int*>(shared + p.offsets_at); }
  /// The first pixel of a row's window, in the tile.
  __device__ int first_pixel(int row) const {
    const int spot = max(row_spots[row], 0);
    const int column = (spot & 4095) * p.stride_w;
    return ((spot >> 24) * p.cut.halo_h + (spot >> 12 & 4095) * p.stride_h) * p.cut.halo_w +
           (p.split == 0 ? column : column / 2);
  }
  /// Offset of a tap's pixel from the window's first pixel.
  __device__ int tap_pixel(int i, int j) const {
    const int column = j * p.dil_w;
    return i * p.dil_h * p.cut.halo_w + (p.split == 0 ? column : column % 2 * p.split + column / 2);
  }

  /// Writes a warp's results from column `column` on; row_of(r) is its row r in the tile. Changes the sums.
  template <int m_tiles, int n_tiles, class RowOf>
  __device__ void write(int (&acc)[m_tiles][n_tiles][4], const Place& place, float scale, int column, int lane,
                        const RowOf& row_of) const {
    const auto row_at = [&](int r) { return place.output(p, row_spots[row_of(r)]); };
    const auto ones_of_row = [&](int r) { return row_spots[T::row_ones + row_of(r)]; };
    const auto ones_of_column = [&](int c) { return row_spots[T::column_ones + column + c]; };
    const auto put = [&](const auto& writer) {
      write_tiles<Product>(acc, writer, p.k, first_column + column, lane, row_at, ones_of_row, ones_of_column);
    };
    const auto put_runs = [&](const auto& writer, auto run) {
      write_planes<run.value, Product>(acc, writer, p.n, p.k, first_column + column, lane, row_at, ones_of_row,
                                       ones_of_column);
    };
    constexpr std::integral_constant<int, 2> pairs;
    if constexpr (Io::planes) {
      const HalfWriter<Product, Io> writer(p, scale);
      if (p.y.plane_run == 8) {
        put_runs(writer, std::integral_constant<int, 8>{});
      } else {
        put_runs(writer, pairs);
      }
    } else if constexpr (Io::halves) {
      put(HalfWriter<Product, Io>(p, scale));
    } else if (p.y.plane_run != 0) {
      put_runs(Writer(p.y, p.n, scale, false), pairs);
    } else {
      put(Writer(p.y, p.n, scale, false));
    }
  }

 private:
  __device__ int* taps() const { return reinterpret_cast<int*>(shared + p.taps_at); }  ///< of the panels of pairs
};

}  // namespace bie::kernels::cuda::halo
