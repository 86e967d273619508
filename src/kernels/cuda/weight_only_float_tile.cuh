// Products of 16-bit floats with panels of codes, which are opened to such floats; sums of a group are multiplied with
// its scale in float32.
#pragma once

#include "kernels/cuda/weight_only_launch.cuh"

namespace bie::kernels::cuda::weight_only {

/// ldmatrix.x4: 8 rows of one chunk of shared memory as the B operands of two products.
__device__ inline uint4 load_four_matrices(unsigned at) {
  uint4 four{};
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(at));
#endif
  return four;
}

/// Accumulators of a warp: `acc` of the current group, `sum` over all groups.
template <class Float, int width, bool with_sums, class S>
struct FloatSums {
  float sum[S::tiles][S::rows8][4], acc[S::tiles][S::rows8][4], x[with_sums ? S::rows8 : 1][4];
  float scale[S::tiles][2], offset[S::tiles][2];
  Record next[S::tiles];
  Opener<Float, width> opener[S::tiles];
  float next_middle;

  /// Prefetches a group's scales and zeros.
  __device__ void ask(const Args& p, int run, const Records<S::tiles>& records) {
    next_middle = with_sums ? __ldg(p.middles + run) : 0;
    records.read(p, next);
  }
  __device__ void begin(const Args& p) {
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) {
      opener[t].set(with_sums ? (1u << (width - 1)) * 0x10001 : next[t].zeros(p));
      next[t].scales(p, scale[t]);
      if (!with_sums) continue;
      float values[2];
      next[t].values(p, values);
#pragma unroll
      for (int half = 0; half < 2; ++half) offset[t][half] = fmaf(next_middle, scale[t][half], -values[half]);
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

template <class Float, int width_, bool with_sums_>
struct FloatProduct {
  using Args = weight_only::Args;
  template <class S>
  using Sums = FloatSums<Float, width_, with_sums_, S>;
  using Row = uint4;
  static constexpr int width = width_, chunk_bytes = 64;
  static constexpr bool with_sums = with_sums_, early = true;

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

/// The tiles that were fastest on an H100, up to 16 rows the one that is by the model of their spread.
template <class P>
Status launch_product(const Args& p, const Gpu& gpu, const Queue& queue) {
  using Whole = Shape<2, 1, 1, 3, true>;
  using Broad = Shape<2, 2, 2, 2, false>;
  using Slim = Shape<1, 2, 2, 3, false>;
  const int rows = p.m * p.parts;
  if (rows <= 16) {
    const Spread broad = spread_of<P, Broad>(p, gpu), slim = spread_of<P, Slim>(p, gpu);
    const bool is_slim = !P::with_sums && slim.cost < broad.cost;  // with sums three blocks have too few registers
    // Whole rows are shared out among the blocks of a cluster: up to 64 thousand slots of eight rows.
    if (rows <= 8 && runs_hopper_code(gpu) && rows * p.chunks <= 8 * 2048) {
      const Spread whole = spread_of<P, Whole>(p, gpu);
      if (whole.cost <= (is_slim ? slim : broad).cost && (rows <= 4 || whole.each > 0))
        return launch_tile<P, Whole>(p, whole, gpu, queue);
    }
    if constexpr (!P::with_sums)
      if (is_slim) return launch_tile<P, Slim>(p, slim, gpu, queue);
    return launch_tile<P, Broad>(p, broad, gpu, queue);
  }
  if (rows > 32) return launch_tile<P, Shape<2, 8, 4, 1, false>>(p, gpu, queue);
  // Where sums of x are added up too, or a step is long, two blocks of a multiprocessor are slower than a larger one.
  using UpTo32 = std::conditional_t<P::with_sums || P::width <= 2, Shape<2, 4, 2, 1, false>, Shape<1, 4, 2, 2, false>>;
  return launch_tile<P, UpTo32>(p, gpu, queue);
}

template <class Float, int width>
Status launch_width(const Args& p, const Gpu& gpu, const Queue& queue) {
  return p.offset == Offset::value ? launch_product<FloatProduct<Float, width, true>>(p, gpu, queue)
                                   : launch_product<FloatProduct<Float, width, false>>(p, gpu, queue);
}

template <int width>
Status run_width(const Args& p, bool bf16, const Gpu& gpu, const Queue& queue) {
  return bf16 ? launch_width<__nv_bfloat16, width>(p, gpu, queue) : launch_width<__half, width>(p, gpu, queue);
}

// One instance per file: instances/weight_only_gemm_mma_w*.cu.
extern template Status run_width<1>(const Args&, bool, const Gpu&, const Queue&);
extern template Status run_width<2>(const Args&, bool, const Gpu&, const Queue&);
extern template Status run_width<4>(const Args&, bool, const Gpu&, const Queue&);
extern template Status run_width<8>(const Args&, bool, const Gpu&, const Queue&);

}  // namespace bie::kernels::cuda::weight_only
