// A convolution in one pass over the image (mma.sync, sm_80 and later): a block quantises the input pixels of a tile of
// output pixels, halo included, into shared memory, multiplies their windows there with panels that come through a ring
// of stages, and goes on to the next tile. No codes lie in device memory, and an input pixel is fetched from there
// about once, however many windows hold it.
#pragma once

#include "kernels/cuda/halo_block.cuh"

namespace bie::kernels::cuda {
namespace halo {

/// Panels in shared memory: a ring of stages behind the tables of a fixed size, then the codes of a tile.
template <class Product, class Shape>
struct Ring {
  using T = Tables<Product, Shape, 1>;
  static constexpr int chunks = Shape::steps * Product::b_step / 16, stage_bytes = Shape::columns * chunks * 16;
  static_assert(T::fixed_bytes % 16 == 0);

  static __host__ __device__ int stages(const HaloArgs& p) { return (p.panel_chunks + chunks - 1) / chunks; }
  static std::int64_t place(HaloArgs* p) { return T::place(p, T::fixed_bytes + std::int64_t{p->ring} * stage_bytes); }
  static __device__ unsigned at(unsigned base, int place) { return base + T::fixed_bytes + place * stage_bytes; }
  /// Starts copying stage number `stage` to its place.
  template <class B>
  static __device__ void load(const B& block, int stage) {
    static_assert(Shape::columns * chunks % Shape::threads == 0 && Shape::threads % chunks == 0);
    const int thread = thread_anew();
    const unsigned to = at(block.base, stage % block.p.ring);
#pragma unroll
    for (int i = 0; i < Shape::columns * chunks / Shape::threads; ++i) {
      const int column = thread / chunks + i * (Shape::threads / chunks);
      block.copy_panel(to + 16 * swizzled<chunks>(stage_row(column), thread % chunks), column,
                       stage * chunks + thread % chunks);
    }
  }
};

template <class Product, class Shape, class Io>
__global__ void __launch_bounds__(Shape::threads, 512 / Shape::threads)
    halo_kernel(const __grid_constant__ HaloArgs p) {
  let_next_start();
  using R = Ring<Product, Shape>;
  constexpr int m_tiles = Shape::warp_rows / 16, n_tiles = Shape::warp_columns / 8;
  extern __shared__ __align__(128) char shared[];
  Block<Product, Shape, Io, 1> block(p, shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / Shape::column_warps * Shape::warp_rows;
  const int warp_column = warp % Shape::column_warps * Shape::warp_columns;
  block.fill_tables();
  // Load all of them before the first use.
  const float step = Product::counts || p.dtype == Dtype::s8 ? 1 : fmaxf(value_of(p.scale), p.eps);
  const float asked = scale_of(p.y);
  const bool flagged = own_flag(p.panel_flags);
  const float scale = __syncthreads_or(flagged) != 0 ? __int_as_float(0x7fc00000) : asked;
  unsigned windows[m_tiles];
#pragma unroll
  for (int i = 0; i < m_tiles; ++i)
    windows[i] = block.base + p.image_at + block.first_pixel(warp_row + 16 * i + lane % 16) * p.cut.pitch;

  const int stages = R::stages(p);
  const bool stays = stages <= p.ring;  // the panels, from one tile to the next
  if (stays) {
    for (int stage = 0; stage < stages; ++stage) R::load(block, stage);
    commit_copies();
    wait_copies<0>();
  }
  using Quick = std::conditional_t<Io::halves && !Product::counts, HalfQuantiser<typename Io::Element>, NoQuantiser>;
  const Quick quick(step, p.range);
  const bool special = Product::counts ? block.least != nullptr : p.bias == nullptr && quick.settled();
  Encoder<Quick> encoder{p, Quantiser(step, p.range), quick, block.spots, block.image, block.least};
  Place place(p, blockIdx.x / block.across);
#pragma unroll 1
  for (int tile = blockIdx.x / block.across; tile < p.cut.tiles; tile += p.tiles_on, place.advance(p)) {
    if (!stays) {
#pragma unroll 1
      for (int stage = 0; stage < Shape::stages - 1; ++stage) {  // fewer than there are, or they would stay
        R::load(block, stage);
        commit_copies();
      }
    }
    if constexpr (Io::halves) {
      if (!block.knows_signs) {
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
      block.count_ones();
      __syncthreads();
    }

    int acc[m_tiles][n_tiles][4] = {};
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) {
      if (!stays) {
        wait_copies<Shape::stages - 2>();
        __syncthreads();
        if (stage + Shape::stages - 1 < stages) R::load(block, stage + Shape::stages - 1);
        commit_copies();
      }
      const unsigned panels = R::at(block.base, stays ? stage : stage % p.ring);
#pragma unroll
      for (int step = 0; step < Shape::steps; ++step) {
        unsigned a[m_tiles][4], b[n_tiles][2];
        const int offset = block.offsets()[2 * (stage * Shape::steps + step) + lane / 16];
#pragma unroll
        for (int i = 0; i < m_tiles; ++i) load_matrices(a[i], windows[i] + offset);
        load_columns<Product, Shape>(b, panels, warp_column, step, lane);
#pragma unroll
        for (int i = 0; i < m_tiles; ++i)
#pragma unroll
          for (int j = 0; j < n_tiles; ++j) Product::mma(acc[i][j], a[i], b[j]);
      }
    }
    wait_copies<0>();
    // The places of results are not worth registers while others are quantised.
    const int thread = thread_anew();
    block.write(acc, place, scale, thread / 32 % Shape::column_warps * Shape::warp_columns, thread % 32,
                [&](int r) { return warp_row + r; });
    __syncthreads();  // before the next tile takes this one's place
  }
  const int bad = __syncthreads_or(!encoder.finite);
  if (threadIdx.x == 0 && p.flags != nullptr) p.flags[blockIdx.x] = bad;
}

}  // namespace halo

template <class Product, class Shape>
Status launch_halo(HaloArgs p, int* flags, const Queue& queue) {
  using R = halo::Ring<Product, Shape>;
  const Gpu* facts = nullptr;
  const Status known = gpu(queue.device, &facts);
  if (known != Status::ok) return known;
  const int stages = R::stages(p);
  p.chunks = stages * Shape::steps * 2;
  p.ring = stages * R::stage_bytes <= most_resident_bytes ? stages : Shape::stages;
  std::int64_t shared = R::place(&p);
  if (shared > shared_of_block && p.ring > Shape::stages) {
    p.ring = Shape::stages;
    shared = R::place(&p);
  }
  const std::int64_t resident =
      std::clamp<std::int64_t>(shared_of_multiprocessor / (shared + 1024), 1, 512 / Shape::threads);
  const std::int64_t blocks = spread_tiles(&p, Shape::columns, resident, facts->multiprocessors);
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
