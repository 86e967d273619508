// A convolution of few channels in one pass over the image (mma.sync, sm_80 and later). A block quantises the lines
// that a tile of output pixels reads into shared memory, elements one behind the other as they lie in channels-last
// images, so that a window's part of a line is a run of at most 32 of them: a step of the product, of bits an eighth of
// one. It keeps the panels, and takes tile after tile; the next one's lines are on their way meanwhile.
#pragma once

#include <algorithm>

#include "kernels/cuda/line_kernels.cuh"
#include "kernels/cuda/mma_tile.cuh"
#include "kernels/cuda/poison.cuh"

namespace bie::kernels::cuda {
namespace lines {

constexpr int threads = 256, warps = threads / 32;
constexpr int m_tiles = side / warps, n_tiles = columns / 8;  ///< a warp has m_tiles lines of 16 pixels
constexpr int step_bytes = columns * 32;

/// Offsets in shared memory.
template <class Product>
struct Layout {
  int codes, column_ones, row_ones, raw, raw_bytes, bytes;
  __host__ __device__ explicit Layout(const LineArgs& p) {
    codes = (Product::counts ? 1 : p.kernel_h) * step_bytes;
    column_ones = codes + p.lines * p.pitch;
    row_ones = column_ones + (Product::counts ? 4 * columns : 0);
    raw = (row_ones + (Product::counts ? 4 * side * side : 0) + 15) / 16 * 16;
    raw_bytes = p.lines * p.runs * p.run_chunks * 16;
    bytes = raw + 2 * raw_bytes;
  }
};

/// Word `word` of what a panel row has for a kernel line: elements tap * channels + channel, of bits all 32, else four.
template <class Product>
__device__ unsigned panel_word(const LineArgs& p, const char* row, int line, int word) {
  const char* const taps = row + line * p.kernel_w * p.tap_bytes;
  unsigned value = 0;
  if constexpr (Product::counts) {
#pragma unroll 4
    for (int j = 0; j < p.kernel_w; ++j)
      value |= (*reinterpret_cast<const std::uint16_t*>(taps + j * p.tap_bytes) & ((1u << p.in_c) - 1)) << j * p.in_c;
  } else {
#pragma unroll
    for (int b = 0; b < 4; ++b) {
      const int e = 4 * word + b, j = e / p.in_c, channel = e - j * p.in_c;
      if (e >= p.kernel_w * p.in_c) continue;
      unsigned byte =
          static_cast<std::uint8_t>(taps[j * p.tap_bytes + (Product::b_step == 16 ? channel % 16 : channel)]);
      if constexpr (Product::b_step == 16) byte = channel < 16 ? byte << 4 & 0xf0u : byte & 0xf0u;  // 16 times the code
      value |= byte << 8 * b;
    }
  }
  return value;
}

/// Panels to shared memory: of each step and column 32 bytes, word w of them at 2 w or 2 w - 7, so that a lane reads
/// both of its operands at once. Word w of bits is kernel line w.
template <class Product>
__device__ void load_panels(const LineArgs& p, int first_column, char* to) {
  constexpr int batch = 4;  // words under way
  const int all = (Product::counts ? 1 : p.kernel_h) * columns * 8;
  for (int first = threadIdx.x; first < all; first += batch * threads) {
    unsigned words[batch];
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = first + b * threads, word = i % 8, column = first_column + i / 8 % columns,
                step = i / (8 * columns);
      const char* const row = p.panels + column * p.panel_stride;
      const bool real = i < all && column < p.n && (!Product::counts || word < p.kernel_h);
      words[b] = real ? panel_word<Product>(p, row, Product::counts ? word : step, word) : 0;
    }
#pragma unroll
    for (int b = 0; b < batch; ++b) {
      const int i = first + b * threads, word = i % 8, column = i / 8 % columns, step = i / (8 * columns);
      const int at = (step * columns + stage_row(column)) * 8 + (word < 4 ? 2 * word : 2 * word - 7);
      if (i < all) reinterpret_cast<unsigned*>(to)[at] = words[b];
    }
  }
}

/// A tile's place in the images.
struct Place {
  int image, y, x;  ///< of its first output pixel
  __device__ Place(const LineArgs& p, int tile) {
    const int across = tile % p.across, rest = tile / p.across;
    image = rest / p.down;
    y = rest % p.down * side;
    x = across * side;
  }
  __device__ int left(const LineArgs& p) const { return x * p.stride_w - p.pad_w; }
  __device__ int top(const LineArgs& p) const { return y * p.stride_h - p.pad_h; }
  /// The byte where a run of a line begins, of column left(); it may lie before the images.
  __device__ std::int64_t run(const LineArgs& p, int size, int line, int channel) const {
    const std::int64_t y_in = top(p) + line;
    return p.pixels_first ? ((std::int64_t{image} * p.in_h + y_in) * p.in_w + left(p)) * p.in_c * size
                          : (((std::int64_t{image} * p.in_c + channel) * p.in_h + y_in) * p.in_w + left(p)) * size;
  }
};

/// Starts copying the lines that a tile reads as they lie, in whole pieces of 16 bytes.
__device__ inline void copy_lines(const LineArgs& p, int size, int tile, char* to) {
  const Place place(p, tile);
  for (int i = thread_anew(); i < p.lines * p.runs * p.run_chunks; i += threads) {
    const int run = i / p.run_chunks, chunk = i - run * p.run_chunks, line = run / p.runs;
    const std::int64_t at = (place.run(p, size, line, run - line * p.runs) & ~std::int64_t{15}) + 16 * chunk;
    const int y = place.top(p) + line;
    if (at < 0 || at >= p.bytes || y < 0 || y >= p.in_h) continue;  // nobody reads it
    if (at + 16 <= p.bytes) {
      copy_chunk(static_cast<unsigned>(__cvta_generic_to_shared(to + 16 * i)), p.x + at, true);
    } else {
      for (int b = 0; at + b < p.bytes; ++b) to[16 * i + b] = __ldg(p.x + at + b);
    }
  }
}

/// Codes of the lines that were copied; whether all of their elements were finite.
template <class Product, class T>
__device__ bool encode(const LineArgs& p, const Quantiser& quantiser, int tile, const char* raw, char* codes) {
  constexpr bool quantises = !std::is_same_v<T, std::int8_t>;
  constexpr int size = sizeof(T);
  const Place place(p, tile);
  const int thread = thread_anew(), lane = thread % 32, left = place.left(p), top = place.top(p);
  bool finite = true;
  for (int segment = 0; 32 * segment < p.elements; ++segment) {
    const int e = 32 * segment + lane, pixel = e / p.in_c, channel = e - pixel * p.in_c;
    const bool real = e < p.elements && static_cast<unsigned>(left + pixel) < static_cast<unsigned>(p.in_w);
    const float bias = quantises && real && p.bias != nullptr ? __ldg(p.bias + channel) : 0.0f;
    const int run = p.pixels_first ? 0 : channel, in_run = (p.pixels_first ? e : pixel) * size;
    for (int line = thread / 32; line < p.lines; line += warps) {
      const bool inside = real && static_cast<unsigned>(top + line) < static_cast<unsigned>(p.in_h);
      const int begin = static_cast<int>(place.run(p, size, line, run) & 15);
      float x = 0;
      if (inside) {
        x = widen(*reinterpret_cast<const T*>(raw + (line * p.runs + run) * p.run_chunks * 16 + begin + in_run));
        if (quantises) {
          x = __fadd_rn(x, bias);
          finite = finite && isfinite(x);
        }
      }
      if constexpr (Product::counts) {
        const unsigned word = __ballot_sync(0xffffffffu, inside && x >= 0);
        if (lane == 0 && 4 * segment < p.pitch)
          *reinterpret_cast<unsigned*>(codes + line * p.pitch + 4 * segment) = word;
      } else {
        int code = quantises ? quantiser.code(x) : static_cast<int>(x);
        if (!quantises && p.range.lo == range_s4.lo) code = ((code & 15) ^ 8) - 8;
        if (e < p.elements) codes[line * p.pitch + e] = static_cast<char>(code);  // 0 where nothing is
      }
    }
  }
  return finite;
}

template <class Product, class T>
__global__ void __launch_bounds__(threads, 2) kernel(const __grid_constant__ LineArgs p) {
  let_next_start();
  wait_for_previous_kernel();
  extern __shared__ __align__(16) char shared[];
  const Layout<Product> at(p);
  char* const codes = shared + at.codes;
  int* const column_ones = reinterpret_cast<int*>(shared + at.column_ones);
  int* const row_ones = reinterpret_cast<int*>(shared + at.row_ones);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // The grid is a multiple of the tiles across: a block keeps its columns.
  const int across = (p.n + columns - 1) / columns, down = gridDim.x / across, first_tile = blockIdx.x / across;
  const int first_column = static_cast<int>(blockIdx.x) % across * columns;
  copy_lines(p, sizeof(T), first_tile, shared + at.raw);
  commit_copies();
  load_panels<Product>(p, first_column, shared);
  if constexpr (Product::counts) {
    for (int c = threadIdx.x; c < columns; c += threads)
      column_ones[c] = first_column + c < p.n ? p.panel_ones[first_column + c] : 0;
  }
  // Load all of them before the first use.
  const float step = Product::counts || p.dtype == Dtype::s8 ? 1 : fmaxf(value_of(p.scale), p.eps);
  const float scale = scale_of(p.y);
  const bool flagged = own_flag(p.panel_flags);
  const Writer writer(p.y, p.n, scale, __syncthreads_or(flagged) != 0);
  const Quantiser quantiser(step, p.range);
  const int pixel = p.stride_w * p.in_c;  // elements from one output pixel's window to the next one's
  bool finite = true;
  int turn = 0;
#pragma unroll 1
  for (int tile = first_tile; tile < p.tiles; tile += down, turn ^= 1) {
    const Place place(p, tile);
    wait_copies<0>();
    __syncthreads();  // what was copied is there, and the last tile's codes have been read
    if (tile + down < p.tiles) copy_lines(p, sizeof(T), tile + down, shared + at.raw + (turn ^ 1) * at.raw_bytes);
    commit_copies();
    finite = encode<Product, T>(p, quantiser, tile, shared + at.raw + turn * at.raw_bytes, codes) && finite;
    __syncthreads();
    int acc[m_tiles][n_tiles][4] = {};
    const auto multiply = [&](const unsigned(&a)[m_tiles][4], int step) {
      const uint2* const panels = reinterpret_cast<const uint2*>(shared + step * step_bytes) + lane;
#pragma unroll
      for (int j = 0; j < n_tiles; ++j) {
        const uint2 pair = panels[32 * j];
        const unsigned b[2] = {pair.x, pair.y};
#pragma unroll
        for (int i = 0; i < m_tiles; ++i) Product::mma(acc[i][j], a[i], b);
      }
    };
    if constexpr (Product::counts) {
      unsigned a[m_tiles][4];
      const unsigned keep = p.kernel_w * p.in_c == 32 ? ~0u : (1u << p.kernel_w * p.in_c) - 1;
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int bit = (lane / 4 + 8 * half) * pixel;
          int ones = 0;
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            const int line = lane % 4 + 4 * part;
            unsigned word = 0;
            if (line < p.kernel_h) {
              const unsigned* const from = reinterpret_cast<const unsigned*>(
                  codes + ((warp * m_tiles + i) * p.stride_h + line * p.dil_h) * p.pitch + bit / 32 * 4);
              word = __funnelshift_r(from[0], from[1], bit % 32) & keep;
            }
            a[i][half + 2 * part] = word;
            ones += __popc(word);
          }
          for (int by = 1; by < 4; by *= 2) ones += __shfl_xor_sync(0xffffffffu, ones, by);
          if (lane % 4 == 0) row_ones[(warp * m_tiles + i) * side + 8 * half + lane / 4] = ones;
        }
      __syncwarp();
      multiply(a, 0);
    } else {
      int from[m_tiles][2];
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          from[i][half] = (warp * m_tiles + i) * p.stride_h * p.pitch + (lane / 4 + 8 * half) * pixel + 4 * (lane % 4);
#pragma unroll 1
      for (int step = 0; step < p.kernel_h; ++step) {
        unsigned a[m_tiles][4];
#pragma unroll
        for (int i = 0; i < m_tiles; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int place_of = from[i][half] + step * p.dil_h * p.pitch;
            const unsigned* const words = reinterpret_cast<const unsigned*>(codes + (place_of & ~3));
            const int shift = 8 * (place_of & 3);
            a[i][half] = __funnelshift_r(words[0], words[1], shift);
            a[i][half + 2] = __funnelshift_r(words[4], words[5], shift);
          }
        multiply(a, step);
      }
    }
    const int thread = thread_anew(), own_lane = thread % 32, own_line = thread / 32 * m_tiles;
    const auto row_at = [&](int r) {
      const int y = place.y + own_line + r / side, x = place.x + r % side;
      return y < p.out_h && x < p.out_w ? (place.image * p.out_h + y) * p.out_w + x : -1;
    };
    const auto ones_of_row = [&](int r) { return row_ones[own_line * side + r]; };
    const auto ones_of_column = [&](int c) { return column_ones[c]; };
    if (p.y.plane_run == 8)
      write_planes<8, Product>(acc, writer, p.n, p.k, first_column, own_lane, row_at, ones_of_row, ones_of_column);
    else if (p.y.plane_run == 2)
      write_planes<2, Product>(acc, writer, p.n, p.k, first_column, own_lane, row_at, ones_of_row, ones_of_column);
    else
      write_tiles<Product>(acc, writer, p.k, first_column, own_lane, row_at, ones_of_row, ones_of_column);
  }
  const int bad = __syncthreads_or(!finite);
  if (threadIdx.x == 0) p.flags[blockIdx.x] = bad;
}

}  // namespace lines

template <class Product>
Status launch_lines(LineArgs p, int* flags, const Queue& queue) {
  const Gpu* facts = nullptr;
  Status status = gpu(queue.device, &facts);
  if (status != Status::ok) return status;
  const lines::Layout<Product> layout(p);
  const std::int64_t across = (p.n + lines::columns - 1) / lines::columns;
  const std::int64_t most =
      std::max<std::int64_t>(1, std::min<std::int64_t>(most_flags, std::int64_t{2} * facts->multiprocessors) / across);
  const std::int64_t rounds = (p.tiles + most - 1) / most, blocks = (p.tiles + rounds - 1) / rounds * across;
  p.flags = flags;
  const auto shared = static_cast<std::size_t>(layout.bytes);
  status = with_value(p.dtype, [&](auto type) {
    const auto kernel = lines::kernel<Product, decltype(type)>;
    return launch_early(kernel, blocks, lines::threads, shared, queue, p);
  });
  if (status != Status::ok || !is_float(p.dtype)) return status;
  const std::int64_t count = std::int64_t{p.batch} * p.out_h * p.out_w * p.n;
  return poison(p.y.data, p.y.dtype, count, {flags, static_cast<int>(blocks)}, queue);
}

}  // namespace bie::kernels::cuda
