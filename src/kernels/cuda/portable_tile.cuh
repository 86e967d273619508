// The product on any GPU: dp4a or popc on words, a 64x64 tile of results a block, 4x4 of them a thread.
#pragma once

#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"

namespace bie::kernels::cuda {

namespace portable {
constexpr int side = 64, threads = 256, per_thread = 4, steps = 2;
}

template <class Product, class Source>
__global__ void __launch_bounds__(portable::threads) portable_kernel(const __grid_constant__ TileArgs<Source> p) {
  using namespace portable;
  constexpr int a_chunks = 2 * steps, b_chunks = steps * Product::b_step / 16;
  constexpr int a_words = 4 * a_chunks, b_words = 4 * b_chunks;
  __shared__ unsigned a_tile[side][a_words + 1], b_tile[side][b_words + 1];
  const int across = (p.n + side - 1) / side;
  const int first_row = static_cast<int>(blockIdx.x / across) * side;
  const int first_column = static_cast<int>(blockIdx.x % across) * side;
  const int thread = threadIdx.x, tx = thread % 16, ty = thread / 16;

  const int a_place = thread / a_chunks;  // side * a_chunks chunks, one per thread
  static_assert(side * a_chunks == threads && side * b_chunks <= threads);
  const bool row_inside = first_row + a_place < p.m;
  const typename Source::Row row = p.a.row(row_inside ? first_row + a_place : 0);
  const int b_place = thread / b_chunks;
  const bool column_inside = b_place < side && first_column + b_place < p.n;

  typename Source::Cursor place = p.a.cursor(thread % a_chunks);
  constexpr bool counts = counts_rows<Product, Source>;
  __shared__ int row_ones[counts ? side : 1];
  int seen = 0;  // ones of the chunks that this thread has copied
  int acc[per_thread][per_thread] = {};
  const int stages = (p.panel_chunks + b_chunks - 1) / b_chunks;
  for (int stage = 0; stage < stages; ++stage) {
    const int bc = stage * b_chunks + thread % b_chunks;
    bool inside = false;
    const char* from = p.a.chunk(row, place, &inside);
    p.a.advance(&place, a_chunks);
    const uint4 zero = make_uint4(0, 0, 0, 0);
    const uint4 a = inside && row_inside ? *reinterpret_cast<const uint4*>(from) : zero;
    const uint4 b =
        column_inside && bc < p.panel_chunks
            ? *reinterpret_cast<const uint4*>(p.panels + (first_column + b_place) * p.panel_stride + bc * chunk_bytes)
            : zero;
    if constexpr (counts) seen += ones_of(a);
    __syncthreads();
    unsigned* to = &a_tile[a_place][thread % a_chunks * 4];
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
    if (b_place < side) {
      to = &b_tile[b_place][thread % b_chunks * 4];
      to[0] = b.x, to[1] = b.y, to[2] = b.z, to[3] = b.w;
    }
    __syncthreads();
#pragma unroll
    for (int step = 0; step < steps; ++step)
#pragma unroll
      for (int t = 0; t < 4; ++t) {
        unsigned first[per_thread], second[per_thread];
#pragma unroll
        for (int i = 0; i < per_thread; ++i) {
          first[i] = a_tile[ty + 16 * i][8 * step + t];
          second[i] = a_tile[ty + 16 * i][8 * step + 4 + t];
        }
#pragma unroll
        for (int j = 0; j < per_thread; ++j) {
          unsigned w[2];
          if constexpr (Product::b_step == 16) {
            Product::widen_word(b_tile[tx + 16 * j][4 * step + t], w);
          } else {
            w[0] = b_tile[tx + 16 * j][8 * step + t];
            w[1] = b_tile[tx + 16 * j][8 * step + 4 + t];
          }
#pragma unroll
          for (int i = 0; i < per_thread; ++i)
            acc[i][j] = Product::dot(second[i], w[1], Product::dot(first[i], w[0], acc[i][j]));
        }
      }
  }

  if constexpr (counts) {
    for (int by = 1; by < a_chunks; by *= 2) seen += __shfl_xor_sync(0xffffffffu, seen, by);
    if (thread % a_chunks == 0) row_ones[a_place] = seen;
  }
  const float scale = scale_of(p.y);
  const Writer writer(p.y, p.n, scale, poisoned(p));  // which all threads reach together
  const Quantiser quantiser = quantiser_of(p.y);
  const CodeWriter codes(p.y, p.n, writer, quantiser);
  const bool signs = p.y.dtype == Dtype::bits;
#pragma unroll
  for (int i = 0; i < per_thread; ++i) {
    const int r = first_row + ty + 16 * i;
    const bool inside_row = r < p.m;
    if (!inside_row && !signs) continue;
    char* const to = writer.row(inside_row ? r : 0);
    int a_ones = 0;
    if constexpr (Product::counts) a_ones = counts ? row_ones[ty + 16 * i] : inside_row ? p.ones[r] : 0;
#pragma unroll
    for (int j = 0; j < per_thread; ++j) {
      const int column = first_column + tx + 16 * j;
      int b_ones = 0;
      if constexpr (Product::counts)
        if (column < p.n) b_ones = p.panel_ones[column];
      const int sum = Product::finish(acc[i][j], p.k, a_ones, b_ones);
      if (!p.y.codes()) {
        writer.put(to, column, sum);
        continue;
      }
      if (!signs) {
        codes.put_code(to, column, sum);
        continue;
      }
      const unsigned of_warp = __ballot_sync(0xffffffffu, codes.code(sum, column) != 0);  // of two rows
      if (inside_row && tx % 8 == 0 && column < p.n) to[column / 8] = static_cast<char>(of_warp >> thread % 32);
    }
  }
}

template <class Product, class Source>
Status launch_portable(const TileArgs<Source>& args, const Queue& queue) {
  using namespace portable;
  const std::int64_t blocks = (std::int64_t{args.m} + side - 1) / side * ((std::int64_t{args.n} + side - 1) / side);
  return launch(portable_kernel<Product, Source>, blocks, threads, 0, queue, args);
}

}  // namespace bie::kernels::cuda
