// The product of up to 12 rows: every block encodes them for itself into shared memory, so that one launch does it
// all, then each warp streams panel rows past them. Large blocks, one a multiprocessor, encode least; where there is
// little to stream small ones start sooner.
#pragma once

#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

namespace gemv {
constexpr int most_threads = 1024, few_threads = 256;
constexpr int most_rows = 12, most_of_warp = 4;  ///< rows, of which a warp has a part
constexpr int byte = 8;                          ///< columns whose signs are a byte, all of one block
constexpr std::int64_t most_shared = 44 * 1024;
}  // namespace gemv

struct GemvArgs {
  Rows x;
  const char* panels;
  std::int64_t panel_stride;
  int panel_chunks;
  int m, n, k;
  bool whole;  ///< every row of x starts at a multiple of 16 bytes
  Range range;
  Results y;
  Flags panel_flags;
  int share = 0;     ///< columns of a block
  int row_bits = 0;  ///< 2^row_bits warps, 4 at most, share the rows of a column
};

/// The sum over the lanes of a warp, in all of them.
__device__ inline int sum_of_warp(int mine) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(0xffffffffu, mine);
#else
  for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(0xffffffffu, mine, step);
  return mine;
#endif
}

/// Bytes of shared memory for m rows of codes.
template <class Product>
constexpr std::int64_t gemv_shared(std::int64_t m, std::int64_t k) {
  return m * row_chunks(Product::a_format, k) * chunk_bytes;
}

/// Codes of the rows, each by as many threads; whether all of xs was finite.
template <class Product, class R, int threads>
__device__ bool encode_to_shared(const GemvArgs& p, unsigned* codes) {
  constexpr Format format = Product::a_format;
  const int row_threads = threads >> (p.m > 8 ? 4 : p.m > 4 ? 3 : p.m > 2 ? 2 : p.m - 1);
  const int row = threadIdx.x >> (__ffs(row_threads) - 1), t = threadIdx.x & (row_threads - 1);
  const std::int64_t stride = row_chunks(format, p.k) * chunk_bytes;
  const Quantiser quantiser(R::quantises ? fmaxf(value_of(p.x.scale), p.x.eps) : 1, p.range);
  bool finite = true;
  if (row < p.m) {
    const RowSource from{static_cast<const char*>(p.x.data) + row * p.x.row_stride, p.x.bias, p.k, p.whole};
    encode_row<R, format, 2>(from, quantiser, t, row_threads, reinterpret_cast<char*>(codes) + row * stride, &finite);
  }
  return finite;
}

template <class Product, class R, int rows, int threads>
__global__ void __launch_bounds__(threads, threads == gemv::few_threads ? 4 : 1)
    gemv_kernel(const __grid_constant__ GemvArgs p) {
  constexpr int warps = threads / 32, warp_bits = warps == 32 ? 5 : 3;
  static_assert(1 << warp_bits == warps);
  extern __shared__ __align__(16) unsigned codes[];
  let_next_start();
  const int lane = threadIdx.x % 32, column_bits = warp_bits - p.row_bits, at_once = 1 << column_bits;
  const int first_row = (threadIdx.x / 32 >> column_bits) * rows;
  const int warp = threadIdx.x / 32 & (at_once - 1);  // of those that have other columns
  const int first = blockIdx.x * p.share, last = min(p.n, first + p.share);
  const auto panel_of = [&](int column) { return reinterpret_cast<const uint4*>(p.panels + column * p.panel_stride); };
  // The first panels are loaded while the previous kernel ends.
  constexpr int early_chunks = rows == 1 ? 4 : 2, line_chunks = 8;
  uint4 early[early_chunks];
  if (first + warp < last) {
    const uint4* const panel = panel_of(first + warp);
#pragma unroll
    for (int i = 0; i < early_chunks; ++i)
      if (lane + 32 * i < p.panel_chunks) early[i] = __ldg(panel + lane + 32 * i);
    for (int c = 32 * early_chunks + lane * line_chunks; c < p.panel_chunks; c += 32 * line_chunks) prefetch(panel + c);
  }
  wait_for_previous_kernel();
  const float scale = scale_of(p.y);
  const bool flagged = own_flag(p.panel_flags);
  const bool finite = encode_to_shared<Product, R, threads>(p, codes);
  const Writer writer(p.y, p.n, scale, __syncthreads_or(flagged || !finite) != 0);

  const int chunks = static_cast<int>(row_chunks(Product::a_format, p.k));
  for (int begin = first; begin < last; begin += at_once) {
    const int column = begin + warp;
    int acc[rows] = {};
    const auto add = [&](int c, const uint4& w) {
      const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (first_row + r >= p.m) continue;
        const uint4* a = reinterpret_cast<const uint4*>(codes) + (first_row + r) * chunks;
        if constexpr (Product::b_step == 16) {
          const uint4 a0 = a[2 * c], a1 = a[2 * c + 1];
          const unsigned low[4] = {a0.x, a0.y, a0.z, a0.w}, high[4] = {a1.x, a1.y, a1.z, a1.w};
#pragma unroll
          for (int t = 0; t < 4; ++t) {
            unsigned b[2];
            Product::widen_word(words[t], b);
            acc[r] = Product::dot(high[t], b[1], Product::dot(low[t], b[0], acc[r]));
          }
        } else {
          const uint4 a0 = a[c];
          const unsigned part[4] = {a0.x, a0.y, a0.z, a0.w};
#pragma unroll
          for (int t = 0; t < 4; ++t)
            acc[r] = Product::counts ? acc[r] + __popc(part[t] ^ words[t]) : Product::dot(part[t], words[t], acc[r]);
        }
      }
    };
    if (column < last) {
      int c = lane;
      if (begin == first) {
#pragma unroll
        for (int i = 0; i < early_chunks; ++i, c += 32)
          if (c < p.panel_chunks) add(c, early[i]);
      }
      const uint4* panel = panel_of(column);
#pragma unroll 4
      for (; c < p.panel_chunks; c += 32) add(c, __ldg(panel + c));
    }
    int sum = 0;  // in lane r of the warp's row r
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const int all = sum_of_warp(acc[r]);
      if (lane == r) sum = Product::counts ? p.k - 2 * all : Product::finish(all, p.k, 0, 0);
    }
    if (p.y.dtype == Dtype::bits) {
      __shared__ int signs[4 * rows][warps];
      if (lane < rows) {
        const Quantiser quantiser = quantiser_of(p.y);
        signs[first_row + lane][warp] = CodeWriter(p.y, p.n, writer, quantiser).code(sum, column);
      }
      __syncthreads();

      const int row = (threadIdx.x * gemv::byte) >> column_bits, at = (threadIdx.x * gemv::byte) & (at_once - 1);
      if (row < p.m && begin + at < last) {
        int byte = 0;
        for (int i = 0; i < gemv::byte; ++i) byte |= signs[row][at + i] << i;
        writer.row(row)[(begin + at) / gemv::byte] = static_cast<char>(byte);
      }
      __syncthreads();
    } else if (lane < rows && first_row + lane < p.m && column < last) {
      char* const row = writer.row(first_row + lane);
      if (p.y.dtype == Dtype::s8) {
        const Quantiser quantiser = quantiser_of(p.y);
        CodeWriter(p.y, p.n, writer, quantiser).put_code(row, column, sum);
      } else {
        writer.put(row, column, sum);
      }
    }
  }
}

template <class Product, class Packed>
Status launch_gemv(GemvArgs p, const Gpu& gpu, const Queue& queue) {
  const auto over = [](int all, int by) { return (all + by - 1) / by; };
  p.share = over(over(p.n, gemv::byte), gpu.multiprocessors) * gemv::byte;
  const bool few = p.m == 1 && p.share == gemv::byte;
  p.row_bits = p.m > 2 * gemv::most_of_warp ? 2 : p.m > gemv::most_of_warp ? 1 : 0;
  const int rows = over(p.m, 1 << p.row_bits);
  const auto shared = static_cast<std::size_t>(gemv_shared<Product>(p.m, p.k));
  return with_reader<Packed>(p.x.dtype, [&](auto reader) {
    using R = decltype(reader);
    const auto kernel = few         ? gemv_kernel<Product, R, 1, gemv::few_threads>
                        : rows == 1 ? gemv_kernel<Product, R, 1, gemv::most_threads>
                                    : gemv_kernel<Product, R, gemv::most_of_warp, gemv::most_threads>;
    const int threads = few ? gemv::few_threads : gemv::most_threads;
    return launch_early(kernel, over(p.n, p.share), threads, shared, queue, p);
  });
}

}  // namespace bie::kernels::cuda
