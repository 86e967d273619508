// The product of up to four rows: every block encodes them for itself into shared memory, so that one launch does it
// all, then each warp streams panel rows past them.
#pragma once

#include "kernels/cuda/encode_row.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

namespace gemv {
constexpr int threads = 256, warps = threads / 32, most_rows = 4;
static_assert(warps == 8);  // a byte of signs
constexpr std::int64_t most_shared = 48 * 1024;
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
};

/// Bytes of shared memory for m rows of codes.
template <class Product>
constexpr std::int64_t gemv_shared(std::int64_t m, std::int64_t k) {
  return m * row_chunks(Product::a_format, k) * chunk_bytes;
}

/// Codes of the rows; whether all of xs was finite.
template <class Product, class R>
__device__ bool encode_to_shared(const GemvArgs& p, unsigned* codes) {
  const Quantiser quantiser(R::quantises ? fmaxf(value_of(p.x.scale), p.x.eps) : 1, p.range);
  constexpr Format format = Product::a_format;
  const std::int64_t stride = row_chunks(format, p.k) * chunk_bytes;
  bool finite = true;
  for (int row = 0; row < p.m; ++row) {
    const RowSource from{static_cast<const char*>(p.x.data) + row * p.x.row_stride, p.x.bias, p.k, p.whole};
    encode_row<R, format, 2>(from, quantiser, threadIdx.x, gemv::threads, reinterpret_cast<char*>(codes) + row * stride,
                             &finite);
  }
  return finite;
}

template <class Product, class R, int rows>
__global__ void __launch_bounds__(gemv::threads, rows == 1 ? 4 : 3) gemv_kernel(const __grid_constant__ GemvArgs p) {
  extern __shared__ __align__(16) unsigned codes[];
  let_next_start();
  const int lane = threadIdx.x % 32;
  const int column_0 = blockIdx.x * gemv::warps + threadIdx.x / 32;
  const auto panel_of = [&](int column) { return reinterpret_cast<const uint4*>(p.panels + column * p.panel_stride); };
  // Panels come to the cache while the kernel before ends, the first chunks while the rows are encoded.
  constexpr int line_chunks = 8;
  if (column_0 < p.n)
    for (int c = lane * line_chunks; c < p.panel_chunks; c += 32 * line_chunks) prefetch(panel_of(column_0) + c);
  wait_for_previous_kernel();
  constexpr int early_chunks = rows == 1 ? 4 : 1;
  uint4 early[early_chunks];
#pragma unroll
  for (int i = 0; i < early_chunks; ++i)
    if (column_0 < p.n && lane + 32 * i < p.panel_chunks) early[i] = __ldg(panel_of(column_0) + lane + 32 * i);
  const float scale = scale_of(p.y);
  const bool finite = encode_to_shared<Product, R>(p, codes);
  const Writer writer(p.y, p.n, scale, __syncthreads_or(!finite || own_flag(p.panel_flags)) != 0);

  const int chunks = static_cast<int>(row_chunks(Product::a_format, p.k));
  const int warp = threadIdx.x / 32;
  for (int first = column_0 - warp; first < p.n; first += gridDim.x * gemv::warps) {
    const int column = first + warp;
    int acc[rows] = {};
    const auto add = [&](int c, const uint4& w) {
      const unsigned words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int r = 0; r < rows; ++r) {
        if (r >= p.m) continue;
        const uint4* a = reinterpret_cast<const uint4*>(codes) + r * chunks;
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
    if (column < p.n) {
      int c = lane;
      if (column == column_0) {
#pragma unroll
        for (int i = 0; i < early_chunks; ++i, c += 32)
          if (c < p.panel_chunks) add(c, early[i]);
      }
      const uint4* panel = panel_of(column);
#pragma unroll 2
      for (; c < p.panel_chunks; c += 32) add(c, __ldg(panel + c));
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      for (int step = 16; step > 0; step /= 2) acc[r] += __shfl_xor_sync(0xffffffffu, acc[r], step);
      acc[r] = Product::counts ? p.k - 2 * acc[r] : Product::finish(acc[r], p.k, 0, 0);
    }
    if (p.y.dtype == Dtype::bits) {  // of eight columns, one a warp, a byte
      const Quantiser quantiser = quantiser_of(p.y);
      const CodeWriter next(p.y, p.n, writer, quantiser);
      __shared__ int signs[rows][gemv::warps];
#pragma unroll
      for (int r = 0; r < rows; ++r)
        if (lane == 0) signs[r][warp] = next.code(acc[r], column);
      __syncthreads();
      if (threadIdx.x < p.m) {
        int byte = 0;
        for (int i = 0; i < gemv::warps; ++i) byte |= signs[threadIdx.x][i] << i;
        writer.row(static_cast<int>(threadIdx.x))[first / 8] = static_cast<char>(byte);
      }
      __syncthreads();
    } else if (lane == 0 && column < p.n) {
#pragma unroll
      for (int r = 0; r < rows; ++r)
        if (r < p.m) {
          if (p.y.dtype == Dtype::s8) {
            const Quantiser quantiser = quantiser_of(p.y);
            CodeWriter(p.y, p.n, writer, quantiser).put_code(writer.row(r), column, acc[r]);
          } else {
            writer.put(writer.row(r), column, acc[r]);
          }
        }
    }
  }
}

template <class Product, class Packed>
Status launch_gemv(const GemvArgs& p, const Gpu& gpu, const Queue& queue) {
  // A block encodes all rows, so blocks beyond what the GPU holds at once would do that for little.
  const std::int64_t blocks = blocks_for(p.n, gemv::warps, std::int64_t{gpu.multiprocessors} * 8);
  const auto shared = static_cast<std::size_t>(gemv_shared<Product>(p.m, p.k));
  return with_reader<Packed>(p.x.dtype, [&](auto reader) {
    using R = decltype(reader);
    const auto kernel = p.m == 1 ? gemv_kernel<Product, R, 1> : gemv_kernel<Product, R, gemv::most_rows>;
    return launch_early(kernel, blocks, gemv::threads, shared, queue, p);
  });
}

}  // namespace bie::kernels::cuda
