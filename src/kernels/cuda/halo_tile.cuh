// A convolution in one pass over the image (mma.sync, sm_80 and later): a block quantises the input pixels of a tile of
// output pixels, halo included, into shared memory, multiplies their windows there with panels that come through a ring
// of stages, and goes on to the next tile. No codes lie in device memory, and an input pixel is fetched from there
// about once, however many windows hold it.
//
// A row of the left operand is the window of an output pixel in chunks of 16 bytes, a pixel's at `pitch` from the
// next's. Where a pixel has half a chunk of signs, the other half holds its right neighbour's: a chunk is two taps.
#pragma once

#include "kernels/cuda/halo_encode.cuh"
#include "kernels/cuda/mma_tile.cuh"
#include "kernels/cuda/poison.cuh"

namespace bie::kernels::cuda {
namespace halo {

/// Starts copying stage number `stage` of a block's panel rows.
template <class Product, class Shape>
__device__ void load_panels(const HaloArgs& p, const int* taps, int first_column, int stage, unsigned to) {
  constexpr int b_chunks = Shape::steps * Product::b_step / 16, threads = Shape::threads;
  constexpr int copies = Shape::columns * b_chunks / threads;
  static_assert(copies * threads == Shape::columns * b_chunks && threads % b_chunks == 0);
  const int thread = thread_anew();
  const int chunk = stage * b_chunks + thread % b_chunks;
#pragma unroll
  for (int i = 0; i < copies; ++i) {
    const int column = thread / b_chunks + i * (threads / b_chunks);
    const bool inside = first_column + column < p.n && chunk < p.panel_chunks;
    const char* const row = p.panels + (inside ? first_column + column : 0) * p.panel_stride;
    const unsigned at = to + 16 * swizzled<b_chunks>(stage_row(column), thread % b_chunks);
    if (Product::a_format == Format::bits && p.paired) {
      const int tap = inside ? taps[chunk] : 0;  // twice the first one, and one more where there is a second
      copy_half(at, row + tap / 2 * chunk_bytes, inside);
      copy_half(at + 8, row + (tap / 2 + tap % 2) * chunk_bytes, inside && tap % 2 != 0);
    } else {
      copy_chunk(at, row + (inside ? chunk : 0) * chunk_bytes, inside);
    }
  }
}

/// Shared memory: tables of a fixed size, stages of panels, the image, and the tables that HaloArgs has the places of.
template <class Product, class Shape>
struct Layout {
  static constexpr int b_chunks = Shape::steps * Product::b_step / 16, stage_bytes = Shape::columns * b_chunks * 16;
  static constexpr int row_ones = Shape::rows, column_ones = 2 * Shape::rows;  // behind the rows' spots; in ints
  static constexpr int panels = 4 * (Product::counts ? 2 * Shape::rows + Shape::columns : Shape::rows);
  static_assert(panels % 16 == 0);

  /// Sets the places in `p`; returns the bytes in all.
  static std::int64_t place(HaloArgs* p) {
    const std::int64_t image = panels + std::int64_t{p->ring} * stage_bytes;
    const std::int64_t spots = image + std::int64_t{p->cut.halo_pixels} * p->cut.pitch;
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

template <class Product, class Shape, class Io>
__global__ void __launch_bounds__(Shape::threads, 512 / Shape::threads)
    halo_kernel(const __grid_constant__ HaloArgs p) {
  let_next_start();
  using L = Layout<Product, Shape>;
  constexpr int m_tiles = Shape::warp_rows / 16, n_tiles = Shape::warp_columns / 8;
  extern __shared__ __align__(128) char shared[];
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  char* const image = shared + p.image_at;
  int* const row_spots = reinterpret_cast<int*>(shared);               // of the output pixels, or -1
  int* const spots = reinterpret_cast<int*>(shared + p.spots_at);      // of the input pixels, or pairs of them
  int* const offsets = reinterpret_cast<int*>(shared + p.offsets_at);  // of a window's chunks
  int* const taps = reinterpret_cast<int*>(shared + p.taps_at);        // of the panels of pairs
  int* const pixel_ones = reinterpret_cast<int*>(shared + p.ones_at);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / Shape::column_warps * Shape::warp_rows;
  const int warp_column = warp % Shape::column_warps * Shape::warp_columns;
  // The grid is a multiple of the tiles across: a block keeps its columns.
  const int across = (p.n + Shape::columns - 1) / Shape::columns;
  const int first_column = static_cast<int>(blockIdx.x) % across * Shape::columns;

  for (int q = threadIdx.x; q < p.chunks; q += Shape::threads) {
    const int parts = p.paired ? 1 : p.pixel_chunks, wide = p.paired ? (p.kernel_w + 1) / 2 : p.kernel_w;
    const int tap = q / parts, i = tap / wide, j = tap % wide * (p.paired ? 2 : 1);
    const bool real = i < p.kernel_h;
    offsets[q] = real ? (i * p.dil_h * p.cut.halo_w + j * p.dil_w) * p.cut.pitch + q % parts * 16 : 0;
    if (p.paired) taps[q] = 2 * (i * p.kernel_w + j) + (j + 1 < p.kernel_w);
  }
  const char* least = nullptr;
  if constexpr (Product::counts && Io::halves) {
    if (p.bias != nullptr && p.least_at != 0) {
      bool tame = true;  // no bias is so large that a sum with it may overflow
      auto* const bounds = reinterpret_cast<typename Io::Element*>(shared + p.least_at);
      for (int c = threadIdx.x; c < 8 * p.groups; c += Shape::threads) {
        const float bias = c < p.in_c ? p.bias[c] : 0;
        tame = tame && fabsf(bias) < 0x1p100f;
        bounds[c] = Io::rounded_up(-bias);
      }
      if (__syncthreads_and(tame) != 0) least = shared + p.least_at;
    }
  }
  const bool knows_signs = Io::halves && (p.bias == nullptr || least != nullptr || !Product::counts);
  const int line = Io::planes && knows_signs ? pairs_of_line(p.cut.halo_w) : p.cut.halo_w;
  for (int r = threadIdx.x; r < p.cut.images * p.cut.halo_h * line; r += Shape::threads) {
    const int plane = p.cut.halo_h * line, rest = r % plane;
    spots[r] = pack_spot(r / plane, rest / line, rest % line);
  }
  for (int r = threadIdx.x; r < Shape::rows; r += Shape::threads) {
    const int plane = p.cut.h * p.cut.w, rest = r % plane;
    row_spots[r] = r / plane < p.cut.images ? pack_spot(r / plane, rest / p.cut.w, rest % p.cut.w) : -1;
  }
  if constexpr (Product::counts) {
    for (int c = threadIdx.x; c < Shape::columns; c += Shape::threads)
      row_spots[L::column_ones + c] = first_column + c < p.n ? p.panel_ones[first_column + c] : 0;
  }
  // All asked for at once.
  const float step = Product::counts || p.dtype == Dtype::s8 ? 1 : fmaxf(value_of(p.scale), p.eps);
  const float asked = scale_of(p.y);
  const bool flagged = own_flag(p.panel_flags);
  const float scale = __syncthreads_or(flagged) != 0 ? __int_as_float(0x7fc00000) : asked;
  const auto first_pixel = [&](int row) {  // of its window, in the tile
    const int spot = max(row_spots[row], 0);
    return ((spot >> 24) * p.cut.halo_h + (spot >> 12 & 4095) * p.stride_h) * p.cut.halo_w + (spot & 4095) * p.stride_w;
  };
  unsigned windows[m_tiles];
#pragma unroll
  for (int i = 0; i < m_tiles; ++i)
    windows[i] = base + p.image_at + first_pixel(warp_row + 16 * i + lane % 16) * p.cut.pitch;

  const int stages = (p.panel_chunks + L::b_chunks - 1) / L::b_chunks;
  const bool stays = stages <= p.ring;  // the panels, from one tile to the next
  const auto load_stage = [&](int stage) {
    load_panels<Product, Shape>(p, taps, first_column, stage, base + L::panels + stage % p.ring * L::stage_bytes);
  };
  if (stays) {
    for (int stage = 0; stage < stages; ++stage) load_stage(stage);
    commit_copies();
    wait_copies<0>();
  }
  using Quick = std::conditional_t<Io::halves && !Product::counts, HalfQuantiser<typename Io::Element>, NoQuantiser>;
  const Quick quick(step, p.range);
  const bool special = Product::counts ? least != nullptr : p.bias == nullptr && quick.settled();
  Encoder<Quick> encoder{p, Quantiser(step, p.range), quick, spots, image, least};
  const int tiles_on = gridDim.x / across;
  const Place stride(p, tiles_on);
  Place place(p, blockIdx.x / across);
#pragma unroll 1
  for (int tile = blockIdx.x / across; tile < p.cut.tiles; tile += tiles_on, place.advance(p, stride)) {
    if (!stays) {
#pragma unroll 1
      for (int stage = 0; stage < Shape::stages - 1; ++stage) {  // fewer than there are, or they would stay
        load_stage(stage);
        commit_copies();
      }
    }
    if constexpr (Io::halves) {
      if (!knows_signs) {
        encoder.template apart<Product, Shape>(place);
      } else if (special) {
        encoder.template halves<Product, Shape, Io, true>(place);
      } else {
        encoder.template halves<Product, Shape, Io, false>(place);
      }
    } else if (p.whole && p.dtype == Dtype::f32) {
      encoder.template side_by_side<Product, Shape, Io, 8, false>(place);
    } else if (p.whole) {
      encoder.template side_by_side<Product, Shape, Io, 4, false>(place);
    } else {
      encoder.template apart<Product, Shape>(place);
    }
    __syncthreads();
    if constexpr (Product::counts) {
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
          for (int j = 0; j < p.kernel_w; ++j) ones += first[i * p.dil_h * p.cut.halo_w + j * p.dil_w];
        row_spots[L::row_ones + r] = ones;
      }
      __syncthreads();
    }

    int acc[m_tiles][n_tiles][4] = {};
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      if (!stays) {
        wait_copies<Shape::stages - 2>();
        __syncthreads();
        if (stage + Shape::stages - 1 < stages) load_stage(stage + Shape::stages - 1);
        commit_copies();
      }
      const unsigned b_base = base + L::panels + (stays ? stage : stage % p.ring) * L::stage_bytes;
#pragma unroll
      for (int step = 0; step < Shape::steps; ++step) {
        unsigned a[m_tiles][4], b[n_tiles][2];
        const int offset = offsets[2 * (stage * Shape::steps + step) + lane / 16];
#pragma unroll
        for (int i = 0; i < m_tiles; ++i) load_matrices(a[i], windows[i] + offset);
        load_columns<Product, Shape>(b, b_base, warp_column, step, lane);
#pragma unroll
        for (int i = 0; i < m_tiles; ++i)
#pragma unroll
          for (int j = 0; j < n_tiles; ++j) Product::mma(acc[i][j], a[i], b[j]);
      }
    }
    wait_copies<0>();
    const int thread = thread_anew();  // the places of results are not worth registers while others are quantised
    const int column = thread / 32 % Shape::column_warps * Shape::warp_columns;
    const auto row_at = [&](int r) { return place.output(p, row_spots[warp_row + r]); };
    const auto ones_of_row = [&](int r) { return row_spots[L::row_ones + warp_row + r]; };
    const auto ones_of_column = [&](int c) { return row_spots[L::column_ones + column + c]; };
    const auto write = [&](const auto& writer) {
      write_tiles<Product>(acc, writer, p.k, first_column + column, thread % 32, row_at, ones_of_row, ones_of_column);
    };
    const auto write_runs = [&](const auto& writer, auto run) {
      write_planes<run.value, Product>(acc, writer, p.n, p.k, first_column + column, thread % 32, row_at, ones_of_row,
                                       ones_of_column);
    };
    constexpr std::integral_constant<int, 2> pairs;
    if constexpr (Io::planes) {
      const HalfWriter<Product, Io> writer(p, scale);
      if (p.y.plane_run == 8) {
        write_runs(writer, std::integral_constant<int, 8>{});
      } else {
        write_runs(writer, pairs);
      }
    } else if constexpr (Io::halves) {
      write(HalfWriter<Product, Io>(p, scale));
    } else if (p.y.plane_run != 0) {
      write_runs(Writer(p.y, p.n, scale, false), pairs);
    } else {
      write(Writer(p.y, p.n, scale, false));
    }
    __syncthreads();  // before the next tile takes this one's place
  }
  const int bad = __syncthreads_or(!encoder.finite);
  if (threadIdx.x == 0 && p.flags != nullptr) p.flags[blockIdx.x] = bad;
}

}  // namespace halo

template <class Product, class Shape>
Status launch_halo(HaloArgs p, int* flags, const Queue& queue) {
  using L = halo::Layout<Product, Shape>;
  const Gpu* facts = nullptr;
  const Status known = gpu(queue.device, &facts);
  if (known != Status::ok) return known;
  const int stages = (p.panel_chunks + L::b_chunks - 1) / L::b_chunks;
  p.chunks = stages * Shape::steps * 2;
  p.ring = stages * L::stage_bytes <= most_resident_bytes ? stages : Shape::stages;
  std::int64_t shared = L::place(&p);
  if (shared > shared_of_block && p.ring > Shape::stages) {
    p.ring = Shape::stages;
    shared = L::place(&p);
  }
  // Blocks that a multiprocessor holds at once, each with as many tiles as the others.
  const std::int64_t resident =
      std::clamp<std::int64_t>(shared_of_multiprocessor / (shared + 1024), 1, 512 / Shape::threads);
  const std::int64_t across = (p.n + Shape::columns - 1) / Shape::columns;
  const std::int64_t most =
      std::max<std::int64_t>(1, std::min<std::int64_t>(most_flags, resident * facts->multiprocessors) / across);
  const std::int64_t rounds = (p.cut.tiles + most - 1) / most, blocks = (p.cut.tiles + rounds - 1) / rounds * across;
  const bool asks = is_float(p.dtype);
  p.flags = asks ? flags : nullptr;
  const auto start = [&](auto io) {
    return launch(halo::halo_kernel<Product, Shape, decltype(io)>, blocks, Shape::threads,
                  static_cast<std::size_t>(shared), queue, p);
  };
  const bool halves = p.whole && p.in_c % 16 == 0 && p.y.dtype == p.dtype && p.y.eights;
  const auto start_halves = [&](auto planes) {
    return p.dtype == Dtype::f16 ? start(halo::HalfIo<__half, planes.value>{})
                                 : start(halo::HalfIo<__nv_bfloat16, planes.value>{});
  };
  const bool is_half = p.dtype == Dtype::f16 || p.dtype == Dtype::bf16;
  const Status status = halves && is_half ? start_halves(std::false_type{})
                        : p.plane_pairs   ? start_halves(std::true_type{})
                                          : start(halo::AnyIo{});
  if (status != Status::ok || !asks) return status;
  const std::int64_t count = std::int64_t{p.batch} * p.out_h * p.out_w * p.n;
  return poison(p.y.data, p.y.dtype, count, {flags, static_cast<int>(blocks)}, queue);
}

}  // namespace bie::kernels::cuda
