// Products of activations of 8 bits with panels of codes, which are opened to unsigned bytes, exact in int32. The sum
// of a group is multiplied with its scale and the row's step size in float32:
//
//     y = sum over groups of  s * (d * D) + a * (d * U),   D = sum of u * q, U = sum of u, W = s * q + a
#pragma once

#include "kernels/cuda/weight_only_int8.h"
#include "kernels/cuda/weight_only_launch.cuh"

namespace bie::kernels::cuda::weight_only {

/// A lane's two scales and what is added to every code's product with them, of one group.
template <int width>
struct ByteScales {
  float scale[2], add[2];

  __device__ void set(const Args& p, const Record& record, float middle) {
    record.scales(p, scale);
    float values[2];
    if (p.offset == Offset::value) {
      record.values(p, values);
#pragma unroll
      for (int half = 0; half < 2; ++half) add[half] = fmaf(middle - (1 << (width - 1)), scale[half], -values[half]);
    } else {
      const unsigned zeros = record.zeros(p);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        add[half] = -scale[half] * static_cast<float>(half == 0 ? zeros & 0xffff : zeros >> 16);
    }
  }
};

/// The left operand of chunk c of a step.
template <int width>
__device__ void open_bytes(const uint4& step, int c, unsigned (&a)[4]) {
  const unsigned w[4] = {step.x, step.y, step.z, step.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const CodePlace place = byte_place(width, c, i % 2, i / 2 * 4);
    a[i] = w[place.word] >> place.bit & 0x01010101 * ((1u << width) - 1);
  }
}

/// ldmatrix.x2: 8 rows of one chunk of shared memory as the B operand.
__device__ inline uint2 load_two_matrices(unsigned at) {
  uint2 two{};
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(two.x), "=r"(two.y) : "r"(at));
#endif
  return two;
}

__device__ inline void multiply_bytes(int (&acc)[4], const unsigned (&a)[4], const uint2& b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(acc[0]), "+r"(acc[1]), "+r"(acc[2]), "+r"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
#endif
}

/// Accumulators of a warp: `acc` of the current group, `sum` over all groups.
template <int width, class S>
struct Int8Sums {
  float sum[S::tiles][S::rows8][4];
  int acc[S::tiles][S::rows8][4];
  ByteScales<width> scales[S::tiles];
  float4 rows[S::rows8], next_rows[S::rows8];  ///< the scales of a lane's two rows
  Record next[S::tiles];
  float next_middle;

  __device__ void ask(const Args& p, int run, const Records<S::tiles>& records) {
    next_middle = p.offset == Offset::value ? __ldg(p.middles + run) : 0;
    records.read(p, next);
  }
  __device__ void begin(const Args& p) {
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) {
      scales[t].set(p, next[t], next_middle);
#pragma unroll
      for (int j = 0; j < S::rows8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[t][j][i] = 0;
    }
  }
  __device__ void ask_rows(const Int8Args& p, int run, int lane) {
    const RowScale* const table = p.row_scales + std::int64_t{run} * p.scale_rows + p.first_row;
#pragma unroll
    for (int j = 0; j < S::rows8; ++j) next_rows[j] = reinterpret_cast<const float4*>(table)[4 * j + lane % 4];
  }
  __device__ void begin_rows() {
#pragma unroll
    for (int j = 0; j < S::rows8; ++j) rows[j] = next_rows[j];
  }
  /// Another warp has the group's first chunk, and adds what belongs to the group once.
  __device__ void share_group() {
#pragma unroll
    for (int j = 0; j < S::rows8; ++j) rows[j].y = rows[j].w = 0;
  }
  __device__ void end() {
#pragma unroll
    for (int t = 0; t < S::tiles; ++t)
#pragma unroll
      for (int j = 0; j < S::rows8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float step = i % 2 == 0 ? rows[j].x : rows[j].z, steps = i % 2 == 0 ? rows[j].y : rows[j].w;
          const float product = static_cast<float>(acc[t][j][i]) * step;
          sum[t][j][i] = fmaf(steps, scales[t].add[i / 2], fmaf(product, scales[t].scale[i / 2], sum[t][j][i]));
        }
  }
  __device__ void chunk(const uint4 (&step)[S::tiles], int c, const uint2 (&of_rows)[S::rows8]) {
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) {
      unsigned a[4];
      open_bytes<width>(step[t], c, a);
#pragma unroll
      for (int j = 0; j < S::rows8; ++j) multiply_bytes(acc[t][j], a, of_rows[j]);
    }
  }
};

template <int width_>
struct Int8Product {
  using Args = Int8Args;
  template <class S>
  using Sums = Int8Sums<width_, S>;
  using Row = uint2;
  static constexpr int width = width_, chunk_bytes = 32;
  static constexpr bool early = width > 2;

  static constexpr int stride(int bytes) { return bytes + 16; }
  static __device__ int place(int, int column) { return column * 16; }
  static __device__ int column_of(int lane) { return lane / 8 % 2; }
  static __device__ unsigned chunk_at(unsigned at, int c) { return at + c * chunk_bytes; }
  static __device__ Row load(unsigned at) { return load_two_matrices(at); }
};

/// The tiles that were fastest on an H100 with groups of 128 and four sizes of n and k.
template <int width>
Status run_int8_tile(const Int8Args& p, const Gpu& gpu, const Queue& queue) {
  const auto with = [&](auto shape) { return launch_tile<Int8Product<width>, decltype(shape)>(p, gpu, queue); };
  const bool few_outputs = p.n <= 32 * gpu.multiprocessors;
  if (p.m <= 8)
    return few_outputs && (p.m == 1 || width <= 2) ? with(Shape<1, 1, 1, 4, false>{})
                                                   : with(Shape<2, 1, 1, 3, false>{});
  if (p.m <= 16) return few_outputs ? with(Shape<2, 2, 1, 2, false>{}) : with(Shape<2, 2, 2, 2, false>{});
  return with(Shape<2, 4, 2, 1, false>{});
}

}  // namespace bie::kernels::cuda::weight_only
