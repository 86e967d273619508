// A convolution in one pass over the image, as halo_tile.cuh's, whose panels stay in shared memory (wgmma, sm_90a):
// three warpgroups quantise the pixels of a tile while two multiply the windows of the tile before, in registers, and
// write its results. Memory is read without a pause, and no product waits for it.
#pragma once

#include "kernels/cuda/halo_block.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/named_barrier.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bie::kernels::cuda {
namespace halo {

/// The threads that quantise, the first of the block.
struct Producers {
  static constexpr int threads = pipeline_producers, registers = 72;
};

/// Named barriers at which one part of the block waits while the other only arrives: an image is complete, or its codes
/// are no longer needed; two of each. One more is for the consumers alone.
enum Barrier { image_ready = 1, image_free = 3, consumers_only = 5 };

/// A producer's prefetched pixels of the block's tiles, in shared memory. Each has places for pipeline_depth pairs of
/// groups of channels, and asks for the next when it has read the oldest. Neighbouring threads read neighbouring
/// groups.
class Pixels {
 public:
  __device__ Pixels(const HaloArgs& p, unsigned to, const int* spots, int tile)
      : p_(p), spots_(spots), place_(p, tile), tile_(tile), to_(to + 16 * threadIdx.x) {
    group_ = first_group(p);
    index_ = first_index(p);
    if (index_ >= p.cut.halo_pixels) tile_ = p.cut.tiles;  // there are more threads than pixels
    spot_ = spots_[min(index_, p.cut.halo_pixels - 1)];
    for (int i = 0; i < pipeline_depth; ++i) ask();
  }
  /// Takes the next pair, in the order of encode(); returns whether its pixel is inside the image.
  __device__ bool take(unsigned (&raw)[2][4]) {
    wait_copies<pipeline_depth - 1>();
    const unsigned from = to_ + at_;
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      const uint4 eight = load_chunk(from + g * group_bytes);
      raw[g][0] = eight.x, raw[g][1] = eight.y, raw[g][2] = eight.z, raw[g][3] = eight.w;
    }
    const bool inside = (inside_ >> (pipeline_depth - 1) & 1) != 0;
    ask();
    return inside;
  }

  /// First group of this thread, and the distance to its next one.
  static __device__ int first_group(const HaloArgs& p) { return threadIdx.x & (apart(p) - 1); }
  static __device__ int apart(const HaloArgs& p) { return 1 << p.pixel_bits; }  ///< groups of a pair
  static __device__ int groups_on(const HaloArgs& p) { return 2 << p.pixel_bits; }
  static __device__ int first_index(const HaloArgs& p) { return threadIdx.x >> p.pixel_bits; }
  static __device__ int indices_on(const HaloArgs& p) { return Producers::threads >> p.pixel_bits; }

 private:
  static constexpr int group_bytes = 16 * Producers::threads;

  __device__ void ask() {
    inside_ <<= 1;
    if (tile_ < p_.cut.tiles) {
      const int pixel = place_.input(p_, spot_);
      inside_ |= pixel >= 0 ? 1 : 0;
      const std::int64_t first = std::int64_t{max(pixel, 0)} * p_.in_c;
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        const int group = group_ + g * apart(p_);
        const bool real = pixel >= 0 && 8 * group < p_.in_c;
        copy_chunk_by_l1(to_ + at_ + g * group_bytes, p_.x + (real ? 2 * (first + 8 * group) : 0), real);
      }
      advance();
      spot_ = spots_[index_];  // for the next time: it comes while others are quantised
    }
    commit_copies();
    at_ = at_ == 2 * group_bytes * (pipeline_depth - 1) ? 0 : at_ + 2 * group_bytes;
  }
  __device__ void advance() {
    index_ += indices_on(p_);
    if (index_ < p_.cut.halo_pixels) return;
    index_ = first_index(p_);
    group_ += groups_on(p_);
    if (group_ < p_.groups) return;
    group_ = first_group(p_);
    tile_ += p_.tiles_on;
    place_.advance(p_);
  }

  const HaloArgs& p_;
  const int* const spots_;
  Place place_;  // of what it asks for next
  int tile_, group_, index_, spot_;
  unsigned to_;          // this thread's places
  int at_ = 0;           // the oldest one
  unsigned inside_ = 0;  // bit i: what it asked for i asks ago
};

/// Codes of a tile, from its pixels. `special`: as of Encoder::halves().
template <class Product, class Io, bool special, class Quick>
__device__ void encode(Encoder<Quick>& encoder, Pixels& pixels) {
  const HaloArgs& p = encoder.p;
  unsigned zero = 0;
#pragma unroll 1
  for (int group = Pixels::first_group(p); group < p.groups; group += Pixels::groups_on(p)) {
#pragma unroll 1
    for (int index = Pixels::first_index(p); index < p.cut.halo_pixels; index += Pixels::indices_on(p)) {
      unsigned raw[2][4];
      const bool inside = pixels.take(raw);
      encoder.template put_groups<Product, Io, special>(raw, index, /*column=*/0, inside, group, Pixels::apart(p),
                                                        &zero);
    }
  }
  encoder.notice(zero);
}

/// The threads that multiply, two warpgroups: each takes 64 of every 128 rows.
template <class Product, class Shape>
struct Consumers {
  static_assert(!Product::counts);
  using T = Tables<Product, Shape, 2>;
  static constexpr int threads = 256, registers = 128, parts = Shape::rows / 128;
  // setmaxnreg: the consumers may take only the registers that the producers release. A block's share of the 65536
  // registers is fixed; if the sum exceeded it, the block would wait for ever.
  static_assert(threads * registers + Producers::threads * Producers::registers <=
                65536 / (threads + Producers::threads) / 8 * 8 * (threads + Producers::threads));
  static constexpr int block_bytes = Shape::columns * 128;  ///< of panels: 128 bytes of each row, four steps
  static constexpr int panels = (T::fixed_bytes + 1023) / 1024 * 1024;
  using Sums = int[parts][Shape::columns / 8][4];
  using Windows = unsigned[parts];

  static __host__ __device__ int blocks(const HaloArgs& p) {
    const int chunks = p.panel_chunks * (32 / Product::b_step);
    return (chunks + 7) / 8;
  }
  /// Sets the places in `p`; returns the bytes in all.
  static std::int64_t place(HaloArgs* p) { return T::place(p, panels + std::int64_t{blocks(*p)} * block_bytes); }

  /// Panel rows to shared memory, as tile_descriptor() has them: a column's is row stage_row() of each block.
  template <class B>
  static __device__ void load_panels(const B& block, int thread) {
    const HaloArgs& p = block.p;
    const int chunks = 8 * blocks(p) / (32 / Product::b_step);
    for (int i = thread; i < Shape::columns * chunks; i += threads) {
      const int column = i / chunks, chunk = i % chunks, row = stage_row(column);
      const auto at = [&](int c) { return panels + c / 8 * block_bytes + row * 128 + ((c % 8) ^ (row % 8)) * 16; };
      if constexpr (Product::b_step == 32) {
        block.copy_panel(block.base + at(chunk), column, chunk);
      } else {  // nibbles, two chunks of bytes
        const bool inside = block.first_column + column < p.n && chunk < p.panel_chunks;
        const char* const from = p.panels + (inside ? (block.first_column + column) * p.panel_stride : 0);
        const uint4 raw = inside ? __ldg(reinterpret_cast<const uint4*>(from) + chunk) : uint4{};
        const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
        unsigned wide[4][2];
#pragma unroll
        for (int w = 0; w < 4; ++w) Product::widen_word(words[w], wide[w]);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<uint4*>(block.shared + at(2 * chunk + half)) =
              make_uint4(wide[0][half], wide[1][half], wide[2][half], wide[3][half]);
      }
    }
    commit_copies();
    wait_copies<0>();
    hopper::before_stores();  // products read shared memory as the TMA does
    wait_at<threads>(consumers_only);
  }

  /// Row r of the warp's tiles of 16 rows, in the block's.
  static __device__ int row(int thread, int r) {
    return (r / 16 * 2 + thread / 128) * 64 + thread % 128 / 32 * 16 + r % 16;
  }
  /// Adds the products of a block of panels. While a warpgroup loads its windows, the other one multiplies.
  template <class B>
  static __device__ void multiply(const B& block, const Windows& windows, int number, Sums& acc, int lane) {
    unsigned a[4 * parts][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const int offset = block.offsets()[8 * number + 2 * step + lane / 16];
#pragma unroll
      for (int i = 0; i < parts; ++i) load_matrices(a[step * parts + i], windows[i] + offset);
    }
    hopper::pin(a);
#pragma unroll
    for (int i = 0; i < parts; ++i) hopper::pin(sums(acc, i));
    hopper::fence_products();
    const std::uint64_t right = hopper::tile_descriptor(block.base + panels + number * block_bytes);
#pragma unroll
    for (int step = 0; step < 4; ++step)
#pragma unroll
      for (int i = 0; i < parts; ++i) wgmma_s8(sums(acc, i), a[step * parts + i], right + 2 * step, number + step > 0);
    hopper::commit_products();
    hopper::wait_products<0>();
#pragma unroll
    for (int i = 0; i < parts; ++i) hopper::pin(sums(acc, i));
  }
  static __device__ int (&sums(Sums& acc, int part))[Shape::columns / 2] {
    return reinterpret_cast<int(&)[Shape::columns / 2]>(acc[part]);
  }
};

template <class Product, class Shape, class T>
__global__ void __launch_bounds__(Producers::threads + Consumers<Product, Shape>::threads, 1)
    halo_pipeline_kernel(const __grid_constant__ HaloArgs p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  let_next_start();
  using C = Consumers<Product, Shape>;
  using Io = HalfIo<T, false>;
  constexpr int all = Producers::threads + C::threads;
  extern __shared__ __align__(1024) char shared[];
  Block<Product, Shape, Io, 2> block(p, shared);
  block.fill_tables();
  // Load all of them before the first use.
  const float step = fmaxf(value_of(p.scale), p.eps);
  const float asked = scale_of(p.y);
  const bool flagged = own_flag(p.panel_flags);
  const float scale = __syncthreads_or(flagged) != 0 ? __int_as_float(0x7fc00000) : asked;
  const HalfQuantiser<T> quick(step, p.range);
  const bool special = p.bias == nullptr && quick.settled();
  bool finite = true;
  if (threadIdx.x < Producers::threads) {
    hopper::give_registers<Producers::registers>();
    const int first = blockIdx.x / block.across;
    Encoder<HalfQuantiser<T>> encoder{p, Quantiser(step, p.range), quick, block.spots, block.image, block.least};
    const auto tiles = [&](const auto& encode_tile) {
      int number = 0;  // of the image
#pragma unroll 1
      for (int tile = first; tile < p.cut.tiles; tile += p.tiles_on, number ^= 1) {
        if (tile >= first + 2 * p.tiles_on) wait_at<all>(image_free + number);
        encoder.image = block.image + number * p.cut.image_bytes();
        encode_tile();
        arrive_at<all>(image_ready + number);
      }
    };
    Pixels pixels(p, block.base + p.pixels_at, block.spots, first);
    if (special) {
      tiles([&] { encode<Product, Io, true>(encoder, pixels); });
    } else {
      tiles([&] { encode<Product, Io, false>(encoder, pixels); });
    }
    wait_copies<0>();
    finite = encoder.finite;
  } else {
    hopper::take_registers<C::registers>();
    const int thread = threadIdx.x - Producers::threads, lane = thread % 32, first = blockIdx.x / block.across;
    Place place(p, first);
    int number = 0;
    typename C::Windows windows;
#pragma unroll
    for (int i = 0; i < C::parts; ++i)
      windows[i] = block.base + p.image_at + block.first_pixel(C::row(thread, 16 * i + lane % 16)) * p.cut.pitch;
    const unsigned other = p.cut.image_bytes();
    C::load_panels(block, thread);
    const int blocks = C::blocks(p);
#pragma unroll 1
    for (int tile = first; tile < p.cut.tiles; tile += p.tiles_on, place.advance(p)) {
      wait_at<all>(image_ready + number);
      typename C::Sums acc;
#pragma unroll 1
      for (int i = 0; i < blocks; ++i) C::multiply(block, windows, i, acc, lane);
      if (tile + 2 * p.tiles_on < p.cut.tiles) arrive_at<all>(image_free + number);  // there it is waited for
      block.write(acc, place, scale, 0, lane, [&](int r) { return C::row(thread, r); });
#pragma unroll
      for (int i = 0; i < C::parts; ++i) windows[i] += number == 0 ? other : 0 - other;
      number ^= 1;
    }
  }
  const int bad = __syncthreads_or(!finite);
  if (threadIdx.x == 0) p.flags[blockIdx.x] = bad;
#endif
}

}  // namespace halo

template <class Product, class Shape>
Status launch_halo_pipeline(HaloArgs p, int* flags, const Queue& queue) {
  using C = halo::Consumers<Product, Shape>;
  const Gpu* facts = nullptr;
  const Status known = gpu(queue.device, &facts);
  if (known != Status::ok) return known;
  p.chunks = 8 * C::blocks(p);
  const std::int64_t pixels = (C::place(&p) + 15) / 16 * 16, shared = pixels + pipeline_pixel_bytes;
  p.pixels_at = cut_to_int(pixels);
  const std::int64_t blocks = spread_tiles(&p, Shape::columns, 1, facts->multiprocessors);
  p.flags = flags;
  const auto start = [&](auto kernel) {
    return launch(kernel, blocks, halo::Producers::threads + C::threads, static_cast<std::size_t>(shared), queue, p);
  };
  const Status status = p.dtype == Dtype::f16 ? start(halo::halo_pipeline_kernel<Product, Shape, __half>)
                                              : start(halo::halo_pipeline_kernel<Product, Shape, __nv_bfloat16>);
  if (status != Status::ok) return status;
  const std::int64_t count = std::int64_t{p.batch} * p.out_h * p.out_w * p.n;
  return poison(p.y.data, p.y.dtype, count, {flags, static_cast<int>(blocks)}, queue);
}

}  // namespace bie::kernels::cuda
