// Products of 16-bit floats with panels of codes, which are opened to such floats; sums of a group are multiplied with
// its scale in float32.
#pragma once

#include "kernels/cuda/weight_only_tile.cuh"

namespace bie::kernels::cuda::weight_only {

/// Of eight rows and a chunk: the right operands of both products.
__device__ inline uint4 load_four_matrices(unsigned at) {
  uint4 four{};
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(at));
#endif
  return four;
}

/// What a warp adds up: of a group in `acc`, of all groups in `sum`.
template <class Float, int width, bool with_sums, class S>
struct FloatSums {
  float sum[S::tiles][S::rows8][4], acc[S::tiles][S::rows8][4], x[with_sums ? S::rows8 : 1][4];
  float scale[S::tiles][2], offset[S::tiles][2];
  Record next[S::tiles];
  Opener<Float, width> opener[S::tiles];
  float next_middle;

  /// Asks for what belongs to a group, before it is wanted.
  __device__ void ask(const Args& p, int run, int tile, int row) {
    if (run >= p.runs) return;
    next_middle = with_sums ? __ldg(p.middles + run) : 0;
#pragma unroll
    for (int t = 0; t < S::tiles; ++t)
      if (tile + t < p.tiles) next[t] = record_of(p, run, tile + t, row);
  }
  __device__ void begin(const Args& p) {
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) {
      opener[t].set(with_sums ? (1u << (width - 1)) * 0x10001 : next[t].zeros(p));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scale[t][half] = next[t].scale(p, half);
        offset[t][half] = with_sums ? fmaf(next_middle, scale[t][half], -next[t].value(p, half)) : 0;
      }
    }
    clear();
  }
  __device__ void ask_rows(const Args&, int, int) {}
  __device__ void begin_rows() {}
  __device__ void share_group() {}
  __device__ void clear() {
#pragma unroll
    for (int j = 0; j < S::rows8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (with_sums) x[j][i] = 0;
#pragma unroll
        for (int t = 0; t < S::tiles; ++t) acc[t][j][i] = 0;
      }
  }
  __device__ void end() {
#pragma unroll
    for (int t = 0; t < S::tiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < S::rows8; ++j) {
          sum[t][j][i] = fmaf(acc[t][j][i], scale[t][i / 2], sum[t][j][i]);
          if (with_sums) sum[t][j][i] = fmaf(x[j][i], offset[t][i / 2], sum[t][j][i]);
        }
  }
  __device__ void chunk(const uint4 (&step)[S::tiles], int c, const uint4 (&rows)[S::rows8]) {
    if constexpr (with_sums) {
      const unsigned ones[4] = {Pair<Float>::one, Pair<Float>::one, Pair<Float>::one, Pair<Float>::one};
#pragma unroll
      for (int j = 0; j < S::rows8; ++j) {
        multiply<Float>(x[j], ones, rows[j].x, rows[j].y);
        multiply<Float>(x[j], ones, rows[j].z, rows[j].w);
      }
    }
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) {
      unsigned a[2][4];
      opener[t].open(step[t], c, a);
#pragma unroll
      for (int j = 0; j < S::rows8; ++j) {
        multiply<Float>(acc[t][j], a[0], rows[j].x, rows[j].y);
        multiply<Float>(acc[t][j], a[1], rows[j].z, rows[j].w);
      }
    }
  }
};

template <class Float, int width_, bool with_sums>
struct FloatProduct {
  using Args = weight_only::Args;
  template <class S>
  using Sums = FloatSums<Float, width_, with_sums, S>;
  using Row = uint4;
  static constexpr int width = width_, chunk_bytes = 64;

  // Rows of several chunks begin at multiples of a step's bytes, and their pieces are turned by the row within 128
  // bytes; rows of one chunk are an odd number of 64 bytes apart, and turned within those.
  static constexpr bool long_rows = step_chunks(width) > 1;
  static constexpr int stride(int bytes) { return long_rows ? bytes : 64 * (bytes / 64 | 1); }
  static __device__ int place(int row, int column) { return (column ^ (long_rows ? row % 8 : row / 2 % 4)) * 16; }
  static __device__ int column_of(int lane) { return lane / 8; }
  static __device__ unsigned chunk_at(unsigned at, int c) { return at ^ (c * chunk_bytes); }
  static __device__ Row load(unsigned at) { return load_four_matrices(at); }

  static int whole_bytes(const Args& p, int steps) {
    return p.m * p.parts * stride(steps * step_chunks(width) * chunk_bytes);
  }
  static __device__ void put_whole(const Args& p, int from, int to, unsigned at, int row_stride) {
    const int pieces = (to - from) * 4;
    for (int row = 0; row < p.m * p.parts; ++row)
      for (int i = threadIdx.x; i < pieces; i += threads)
        copy_chunk(at + row * row_stride + place(row, i), p.x + row * p.x_stride + std::int64_t{from} * 64 + i * 16,
                   true);
  }
};

/// The tiles that were fastest on an H100 at 4 bits, groups of 128 and four sizes of n and k.
template <class Float, int width>
Status launch_width(const Args& p, const Gpu& gpu, const Queue& queue) {
  const int rows = p.m * p.parts;
  const auto with = [&](auto shape) {
    using S = decltype(shape);
    return p.offset == Offset::value ? launch_tile<FloatProduct<Float, width, true>, S>(p, gpu, queue)
                                     : launch_tile<FloatProduct<Float, width, false>, S>(p, gpu, queue);
  };
  // Whole rows are shared out among the blocks of a cluster: up to 64 thousand slots of eight rows.
  const bool fits_whole = runs_hopper_code(gpu) && rows * p.chunks <= 8 * 2048;
  if (rows <= 2 && fits_whole)
    return p.n < 16 * gpu.multiprocessors ? with(Shape<1, 1, 1, 4, true>{}) : with(Shape<2, 1, 1, 3, true>{});
  if (rows <= 4 && fits_whole)
    return p.n <= 32 * gpu.multiprocessors ? with(Shape<2, 1, 1, 3, true>{}) : with(Shape<1, 1, 2, 4, true>{});
  // Copying eight long rows before the loop takes longer than 16 rows in a ring.
  if (rows <= 8 && fits_whole && p.chunks <= 128)
    return p.n < 64 * gpu.multiprocessors ? with(Shape<2, 1, 4, 3, true>{}) : with(Shape<1, 1, 4, 4, true>{});
  if (rows <= 16)
    return std::min(p.n, p.chunks * 32) < 64 * gpu.multiprocessors - 256 ? with(Shape<1, 2, 4, 2, false>{})
                                                                         : with(Shape<2, 2, 2, 2, false>{});
  return rows <= 32 ? with(Shape<2, 4, 2, 1, false>{}) : with(Shape<2, 8, 4, 1, false>{});
}

template <int width>
Status run_width(const Args& p, bool bf16, const Gpu& gpu, const Queue& queue) {
  return bf16 ? launch_width<__nv_bfloat16, width>(p, gpu, queue) : launch_width<__half, width>(p, gpu, queue);
}

// One instance a file: instances/weight_only_gemm_mma_w*.cu.
extern template Status run_width<1>(const Args&, bool, const Gpu&, const Queue&);
extern template Status run_width<2>(const Args&, bool, const Gpu&, const Queue&);
extern template Status run_width<4>(const Args&, bool, const Gpu&, const Queue&);
extern template Status run_width<8>(const Args&, bool, const Gpu&, const Queue&);

}  // namespace bie::kernels::cuda::weight_only
