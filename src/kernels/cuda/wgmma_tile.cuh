// The product on Hopper's warpgroup instructions (wgmma, sm_90a). One warp of a block keeps a ring of stages in shared
// memory filled by the TMA; each consumer warpgroup multiplies 64 rows of the left tile with the right tile and writes
// its part of the results, while the ring already fills for the next tile. Blocks stay and take tile after tile.
//
// The left operand is the activation, or the weight where few rows of activations would leave most of its 64 rows empty
// and where 4-bit weights are opened in registers, which only the left operand may come from.
#pragma once

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/tile_args.cuh"
#include "kernels/cuda/tiles.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace bie::kernels::cuda {

struct WgmmaArgs {
  CUtensorMap left, right, out;
  int left_rows, right_rows, stages, k;
  const char *left_ones, *right_ones;  ///< of bits: behind the chunks of the first row
  std::int64_t left_stride, right_stride;
  Results y;
  bool boxes;  ///< results leave by TMA
  int m, n;
  Flags flags, panel_flags;
};

namespace wgmma {

constexpr int row_bytes = 128;  ///< of a stage, and of a box of results
constexpr int steps = row_bytes / 32;
constexpr int box_rows = 64;

template <class Product>
constexpr bool left_in_registers = Product::b_step == 16;

template <class Product, class Shape>
struct Layout {
  static constexpr int left_row = left_in_registers<Product> ? row_bytes / 2 : row_bytes;
  static constexpr int left_bytes = Shape::left * left_row, right_bytes = Shape::right * row_bytes;
  static constexpr int stage_bytes = left_bytes + right_bytes;
  static constexpr int box_bytes =
      (Shape::weight_left && Shape::right < box_rows ? Shape::right : box_rows) * row_bytes;
  static constexpr int boxes_bytes = Shape::consumers * 2 * box_bytes;
  static constexpr int ones_bytes = Product::counts ? Shape::consumers * Shape::right * 4 : 0;
  static constexpr int most = 227 * 1024 - 1024 /* alignment */ - 256 /* barriers */;
  static constexpr int fitting = (most - boxes_bytes - ones_bytes) / stage_bytes;
  static constexpr int stages = fitting < Shape::most_stages ? fitting : Shape::most_stages;
  static constexpr int boxes_at = stages * stage_bytes, ones_at = boxes_at + boxes_bytes;
  static constexpr int barriers_at = ones_at + ones_bytes, bytes = barriers_at + stages * 16 + 1024;
  static_assert(stages >= 2 && Shape::left == 64 * Shape::consumers);
};

/// Tiles in bands of eight left ones, so that blocks at work together share what they read.
struct Place {
  int left, right;
};
__device__ inline Place place_of(int tile, int left_tiles, int right_tiles) {
  constexpr int band = 8;
  const int first = tile / (band * right_tiles) * band, inside = tile - first * right_tiles;
  const int height = min(band, left_tiles - first);
  return {first + inside % height, inside / height};
}

/// A place in the ring.
template <int stages>
struct Cursor {
  int stage = 0;
  unsigned parity = 0;
  __device__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Adds the products of a stage in shared memory.
template <class Product, int registers>
__device__ void multiply(int (&acc)[registers], std::uint64_t left, std::uint64_t right, int keep) {
  if constexpr (Product::counts)
    wgmma_b1(acc, left, right, keep);
  else
    wgmma_s8(acc, left, right, keep);
}

/// Two neighbours as 16-bit floats in one register.
__device__ inline unsigned pack_pair(Dtype dtype, float first, float second) {
  if (dtype == Dtype::bf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const unsigned*>(&pair);
  }
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const unsigned*>(&pair);
}

template <class Product, class Shape>
__global__ void __launch_bounds__(Shape::threads, 1) wgmma_kernel(const __grid_constant__ WgmmaArgs p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = Layout<Product, Shape>;
  extern __shared__ char unaligned[];
  const unsigned base = (static_cast<unsigned>(__cvta_generic_to_shared(unaligned)) + 1023) / 1024 * 1024;
  const unsigned full = base + L::barriers_at, empty = full + 8 * L::stages;
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = threadIdx.x % 32;
  const int left_tiles = (p.left_rows + Shape::left - 1) / Shape::left;
  const int right_tiles = (p.right_rows + Shape::right - 1) / Shape::right;
  const int tiles = left_tiles * right_tiles;
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::stages; ++i) {
      hopper::init_barrier(full + 8 * i, 1);
      hopper::init_barrier(empty + 8 * i, 4 * Shape::consumers);  // a lane of each consumer warp
    }
    hopper::publish_barriers();
  }
  __syncthreads();
  Cursor<L::stages> at;

  if (threadIdx.x < 128) {
    if constexpr (Shape::consumers > 1) hopper::give_registers<40>();
    if (threadIdx.x != 0) return;
    hopper::prefetch(p.left);
    hopper::prefetch(p.right);
    const auto load_left = [&](const Place& place, int i, int stage) {
      hopper::load_box(base + stage * L::stage_bytes, p.left, i * L::left_row, place.left * Shape::left,
                       full + 8 * stage);
    };
    const auto load_right = [&](const Place& place, int i, int stage) {
      hopper::load_box(base + stage * L::stage_bytes + L::left_bytes, p.right, i * row_bytes,
                       place.right * Shape::right, full + 8 * stage);
    };
    // The weight does not come from the kernel before, the activation does.
    const Place first = place_of(blockIdx.x, left_tiles, right_tiles);
    const int early = min(L::stages, p.stages);
    for (int i = 0; i < early; ++i) {
      hopper::arrive_expecting(full + 8 * i, L::stage_bytes);
      Shape::weight_left ? load_left(first, i, i) : load_right(first, i, i);
    }
    hopper::wait_for_previous_kernel();
    for (int i = 0; i < early; ++i, at.advance()) Shape::weight_left ? load_right(first, i, i) : load_left(first, i, i);
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Place place = place_of(tile, left_tiles, right_tiles);
      for (int i = tile == static_cast<int>(blockIdx.x) ? early : 0; i < p.stages; ++i, at.advance()) {
        hopper::wait(empty + 8 * at.stage, at.parity ^ 1);
        hopper::arrive_expecting(full + 8 * at.stage, L::stage_bytes);
        load_left(place, i, at.stage);
        load_right(place, i, at.stage);
      }
    }
    return;
  }

  if constexpr (Shape::consumers > 1) hopper::take_registers<232>();
  hopper::wait_for_previous_kernel();
  const int group = threadIdx.x / 128 - 1;
  const auto ones_of_row = [](const char* ones, std::int64_t stride, int row, int rows) {
    return row < rows ? *reinterpret_cast<const int*>(ones + row * stride) : 0;
  };
  int* const right_ones =
      reinterpret_cast<int*>(unaligned + (base - __cvta_generic_to_shared(unaligned)) + L::ones_at) +
      group * Shape::right;
  const auto flagged = [&](const Flags& flags) {
    bool any = false;
    for (int i = thread; i < flags.count; i += 128) any = any || flags.data[i] != 0;
    return any;
  };
  const bool poisoned = hopper::any_of_warpgroup(group + 1, flagged(p.flags) || flagged(p.panel_flags));
  const Writer writer(p.y, p.n, poisoned);

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Place place = place_of(tile, left_tiles, right_tiles);
    const int first_right = place.right * Shape::right;
    const int first_left = place.left * Shape::left + 64 * group;
    const int row = first_left + 16 * warp + lane / 4;  // and eight further on
    int ones[2] = {}, of_right[(Shape::right + 127) / 128] = {};
    if constexpr (Product::counts) {  // asked for here, needed after the product
      for (int half = 0; half < 2; ++half)
        ones[half] = ones_of_row(p.left_ones, p.left_stride, row + 8 * half, p.left_rows);
#pragma unroll
      for (int i = 0; i < (Shape::right + 127) / 128; ++i)
        of_right[i] = ones_of_row(p.right_ones, p.right_stride, first_right + thread + 128 * i, p.right_rows);
    }

    int acc[Shape::right / 2];
    int before = 0;  // the stage whose products may still be at work
    for (int i = 0; i < p.stages; ++i, at.advance()) {
      const unsigned left = base + at.stage * L::stage_bytes, right = left + L::left_bytes;
      hopper::wait(full + 8 * at.stage, at.parity);
      if constexpr (left_in_registers<Product>) {
        unsigned words[steps][2], codes[steps][4];
        const unsigned from = left + (64 * group + 16 * warp + lane / 4) * L::left_row + lane % 4 * 4;
#pragma unroll
        for (int step = 0; step < steps; ++step)
#pragma unroll
          for (int half = 0; half < 2; ++half)  // rows of 64 bytes: the swizzle turns chunks by half the row's number
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(words[step][half])
                         : "r"(from + 8 * half * L::left_row + 16 * (step ^ lane / 8)));
        hopper::wait_products<0>();
        if (i > 0 && lane == 0) hopper::arrive(empty + 8 * before);
#pragma unroll
        for (int step = 0; step < steps; ++step)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            unsigned opened[2];
            Product::widen_word(words[step][half], opened);
            codes[step][half] = opened[0];
            codes[step][half + 2] = opened[1];
          }
        hopper::fence_products();
#pragma unroll
        for (int step = 0; step < steps; ++step)
          wgmma_s8(acc, codes[step], hopper::tile_descriptor(right) + 2 * step, i + step > 0);
        hopper::commit_products();
      } else {
        const std::uint64_t l = hopper::tile_descriptor(left + 64 * group * row_bytes);
        const std::uint64_t r = hopper::tile_descriptor(right);
        hopper::fence_products();
#pragma unroll
        for (int step = 0; step < steps; ++step) multiply<Product>(acc, l + 2 * step, r + 2 * step, i + step > 0);
        hopper::commit_products();
        hopper::wait_products<1>();
        if (i > 0 && lane == 0) hopper::arrive(empty + 8 * before);
      }
      before = at.stage;
    }
    hopper::wait_products<0>();
    if (lane == 0) hopper::arrive(empty + 8 * before);

    if constexpr (Product::counts) {
      hopper::sync_warpgroup(group + 1);  // the last tile's have been read
#pragma unroll
      for (int i = 0; i < (Shape::right + 127) / 128; ++i)
        if (thread + 128 * i < Shape::right) right_ones[thread + 128 * i] = of_right[i];
      hopper::sync_warpgroup(group + 1);
    }
    /// Element (row + 8 * half, columns 8 * j + lane % 4 * 2 + c) of the tile.
    const auto result = [&](int j, int half, int c) {
      const int right = Product::counts ? right_ones[8 * j + lane % 4 * 2 + c] : 0;
      return Product::finish(acc[4 * j + 2 * half + c], p.k, ones[half], right);
    };
    if (p.boxes) {
      constexpr int across = Shape::right < box_rows ? Shape::right : box_rows;  // right rows of a box
      const unsigned boxes = base + L::boxes_at + group * 2 * L::box_bytes;
#pragma unroll
      for (int b = 0; b < Shape::right / across; ++b) {
        const unsigned box = boxes + b % 2 * L::box_bytes;
        if (thread == 0) hopper::wait_stores_read<1>();
        hopper::sync_warpgroup(group + 1);
#pragma unroll
        for (int i = 0; i < across / 8; i += 2) {
          const int j = b * (across / 8) + i;
          unsigned r[4];
#pragma unroll
          for (int part = 0; part < 4; ++part)
            r[part] = pack_pair(p.y.dtype, writer.scaled(result(j + part / 2, part % 2, 0)),
                                writer.scaled(result(j + part / 2, part % 2, 1)));
          const int matrix = lane / 8;
          if constexpr (Shape::weight_left) {
            const int to_row = 8 * (i + matrix / 2) + lane % 8, chunk = 2 * warp + matrix % 2;
            hopper::store_matrices<true>(box + to_row * row_bytes + 16 * (chunk ^ to_row % 8), r);
          } else {
            const int to_row = 16 * warp + matrix % 2 * 8 + lane % 8, chunk = i + matrix / 2;
            hopper::store_matrices<false>(box + to_row * row_bytes + 16 * (chunk ^ to_row % 8), r);
          }
        }
        hopper::before_stores();
        hopper::sync_warpgroup(group + 1);
        if (thread == 0) {
          if constexpr (Shape::weight_left)
            hopper::store_box(p.out, first_left, first_right + b * across, box);
          else
            hopper::store_box(p.out, first_right + b * across, first_left, box);
          hopper::commit_stores();
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < Shape::right / 8; ++j) {
        const int column = first_right + 8 * j + lane % 4 * 2;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int first = result(j, half, 0), second = result(j, half, 1);
          if constexpr (Shape::weight_left) {
            if (column < p.m) writer.put(writer.row(column), row + 8 * half, first);
            if (column + 1 < p.m) writer.put(writer.row(column + 1), row + 8 * half, second);
          } else if (row + 8 * half < p.m) {
            writer.put_pair(writer.row(row + 8 * half), column, first, second);
          }
        }
      }
    }
  }
  if (thread == 0) hopper::wait_stores<0>();
#endif
}

}  // namespace wgmma

template <class Product, class Shape>
Status launch_wgmma(const TileArgs<MatrixRows>& args, const Queue& queue) {
  using L = wgmma::Layout<Product, Shape>;
  const Gpu* facts = nullptr;
  Status status = gpu(queue.device, &facts);
  if (status != Status::ok) return status;
  constexpr bool swap = Shape::weight_left;
  const std::int64_t a_bytes = args.a.chunks * chunk_bytes, b_bytes = args.panel_chunks * chunk_bytes;
  WgmmaArgs p{};
  CUtensorMap& a_map = swap ? p.right : p.left;
  CUtensorMap& b_map = swap ? p.left : p.right;
  status = make_tensor_map(args.a.data, args.m, a_bytes, 1, args.a.stride,
                           {wgmma::row_bytes, swap ? Shape::right : Shape::left}, &a_map);
  if (status == Status::ok)
    status = make_tensor_map(args.panels, args.n, b_bytes, 1, args.panel_stride,
                             {swap ? L::left_row : wgmma::row_bytes, swap ? Shape::left : Shape::right}, &b_map);
  const std::int64_t element = row_bytes(args.y.dtype, 1);
  // The TMA writes whole pieces of 16 bytes.
  p.boxes = element == 2 && args.n % 8 == 0 && args.y.stride != 0 && args.y.stride % 16 == 0 &&
            reinterpret_cast<std::uintptr_t>(args.y.data) % 16 == 0;
  if (status == Status::ok && p.boxes)
    status = make_tensor_map(args.y.data, args.m, args.n, 2, args.y.stride,
                             {wgmma::row_bytes / 2, L::box_bytes / wgmma::row_bytes}, &p.out);
  if (status != Status::ok) return status;
  p.left_rows = swap ? args.n : args.m;
  p.right_rows = swap ? args.m : args.n;
  p.stages = static_cast<int>((a_bytes + wgmma::row_bytes - 1) / wgmma::row_bytes);
  p.k = args.k;
  const char* const a_ones = args.a.data + a_bytes;
  const char* const b_ones = args.panels + b_bytes;
  p.left_ones = swap ? b_ones : a_ones;
  p.right_ones = swap ? a_ones : b_ones;
  p.left_stride = swap ? args.panel_stride : args.a.stride;
  p.right_stride = swap ? args.a.stride : args.panel_stride;
  p.y = args.y;
  p.m = args.m;
  p.n = args.n;
  p.flags = args.flags;
  p.panel_flags = args.panel_flags;
  const std::int64_t tiles = (std::int64_t{p.left_rows} + Shape::left - 1) / Shape::left *
                             ((std::int64_t{p.right_rows} + Shape::right - 1) / Shape::right);
  if (tiles > INT32_MAX) return Status::bad_shape;
  const std::int64_t blocks = tiles < facts->multiprocessors ? tiles : facts->multiprocessors;
  return launch_beside(wgmma::wgmma_kernel<Product, Shape>, blocks, Shape::threads, L::bytes, queue, p);
}

}  // namespace bie::kernels::cuda
