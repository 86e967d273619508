// The product of up to four rows: every block encodes them for itself into shared memory, so that one launch does it
// all, then each warp streams panel rows past them.
#pragma once

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

namespace gemv {
constexpr int threads = 256, warps = threads / 32, most_rows = 4;
constexpr std::int64_t most_shared = 48 * 1024;
}  // namespace gemv

struct GemvArgs {
  Rows x;
  const char* panels;
  std::int64_t panel_stride;
  int panel_chunks;
  int m, n, k;
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
  const float step = R::quantises ? fmaxf(value_of(p.x.scale), p.x.eps) : 1;
  const int words = static_cast<int>(row_chunks(Product::a_format, p.k)) * 4;
  bool finite = true;
  for (int row = 0; row < p.m; ++row) {
    const char* from = static_cast<const char*>(p.x.data) + row * p.x.row_stride;
    unsigned* to = codes + row * words;
    if constexpr (Product::a_format == Format::bits) {
      const int lane = threadIdx.x % 32;
#pragma unroll 4
      for (int w = threadIdx.x / 32; w < words; w += gemv::warps) {
        const int e = 32 * w + lane;
        const unsigned word = __ballot_sync(0xffffffffu, e < p.k && read<R>(from, e, p.x.bias, &finite) >= 0);
        if (lane == 0) to[w] = word;
      }
    } else {
      for (int w = threadIdx.x; w < words; w += gemv::threads)
        to[w] = word_of<Product::a_format>(w, [&](std::int64_t e) {
          return e < p.k ? code<R>(read<R>(from, e, p.x.bias, &finite), step, p.range) : 0;
        });
    }
  }
  return finite;
}

template <class Product, class R, int rows>
__global__ void __launch_bounds__(gemv::threads, 4) gemv_kernel(const __grid_constant__ GemvArgs p) {
  extern __shared__ __align__(16) unsigned codes[];
  const bool finite = encode_to_shared<Product, R>(p, codes);
  const Writer writer(p.y, p.n, __syncthreads_or(!finite || own_flag(p.panel_flags)) != 0);

  const int lane = threadIdx.x % 32;
  const int chunks = static_cast<int>(row_chunks(Product::a_format, p.k));
  for (int column = blockIdx.x * gemv::warps + threadIdx.x / 32; column < p.n; column += gridDim.x * gemv::warps) {
    const uint4* panel = reinterpret_cast<const uint4*>(p.panels + column * p.panel_stride);
    int acc[rows] = {};
#pragma unroll 2
    for (int c = lane; c < p.panel_chunks; c += 32) {
      const uint4 w = __ldg(panel + c);
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
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      for (int step = 16; step > 0; step /= 2) acc[r] += __shfl_xor_sync(0xffffffffu, acc[r], step);
      if (lane == 0 && r < p.m)
        writer.put(writer.row(r), column, Product::counts ? p.k - 2 * acc[r] : Product::finish(acc[r], p.k, 0, 0));
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
    if (p.m == 1) return launch(gemv_kernel<Product, R, 1>, blocks, gemv::threads, shared, queue, p);
    return launch(gemv_kernel<Product, R, gemv::most_rows>, blocks, gemv::threads, shared, queue, p);
  });
}

}  // namespace bie::kernels::cuda
