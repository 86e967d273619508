// The product on tensor cores (mma.sync, sm_80 and later): a block computes a tile of results, copies its operands
// through a ring of stages in shared memory with cp.async, and each of its warps a part of the tile.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/tile_args.cuh"
#include "kernels/cuda/tiles.cuh"

namespace bie::kernels::cuda {

template <class Product, class Shape, class Source>
constexpr std::size_t tile_shared() {
  return std::size_t{Shape::stages} * Shape::steps * (Shape::rows * 32 + Shape::columns * Product::b_step) +
         (counts_rows<Product, Source> ? Shape::rows * sizeof(int) : 0);
}

/// Swizzled position of a 16-byte chunk of a row, so that eight rows are read without a bank conflict.
template <int chunks>
__device__ int swizzled(int row, int chunk) {
  return row * chunks + (chunk ^ (row / (8 / chunks)) % chunks);
}

__device__ inline void load_matrices(unsigned (&r)[4], unsigned from) {
#if __CUDA_ARCH__ >= 800
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
#endif
}

/// Which row of a stage holds a column's panel, so that the results of four neighbouring 16x8 tiles that a lane has in
/// one row are of eight neighbouring columns: 8t ... 8t+7 of 32, t = lane % 4.
__device__ inline int stage_row(int column) {
  return (column & ~31) | column % 8 / 2 * 8 | column % 32 / 8 * 2 | column % 2;
}

/// The right operands of a warp's columns for one step of a stage.
template <class Product, class Shape, int n_tiles>
__device__ void load_columns(unsigned (&b)[n_tiles][2], unsigned stage, int warp_column, int step, int lane) {
  constexpr int chunks = Shape::steps * Product::b_step / 16;
  static_assert(n_tiles % 4 == 0);
  if constexpr (Product::b_step == 32) {
#pragma unroll
    for (int j = 0; j < n_tiles; j += 2) {
      unsigned r[4];
      const int row = warp_column + 8 * j + lane % 8 + lane / 16 * 8;
      load_matrices(r, stage + 16 * swizzled<chunks>(row, 2 * step + lane / 8 % 2));
      b[j][0] = r[0];
      b[j][1] = r[1];
      b[j + 1][0] = r[2];
      b[j + 1][1] = r[3];
    }
  } else {
#pragma unroll
    for (int j = 0; j < n_tiles; j += 4) {
      unsigned r[4];
      load_matrices(r, stage + 16 * swizzled<chunks>(warp_column + 8 * j + lane, step));
#pragma unroll
      for (int i = 0; i < 4; ++i) Product::widen_word(r[i], b[j + i]);
    }
  }
}

/// The first of the eight neighbouring columns that a lane has in tiles 4 * eight and the next three.
__device__ inline int lane_columns(int lane, int eight) { return 8 * (lane % 4) + 32 * eight; }

/// Adds the columns' popcount terms and `more` to the sums; the rows' terms are subtracted later.
template <class Product, int m_tiles, int n_tiles, class ColumnOnes>
__device__ void add_column_ones(int (&acc)[m_tiles][n_tiles][4], int k, int more, int lane,
                                const ColumnOnes& column_ones) {
#pragma unroll
  for (int eight = 0; eight < n_tiles / 4; ++eight)
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const int part = Product::finish(0, k, 0, column_ones(lane_columns(lane, eight) + c)) + more;
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int& sum = acc[i][4 * eight + c / 2][2 * half + c % 2];
          sum = Product::finish(sum, part, 0, 0);
        }
    }
}

/// Writes a warp's tiles of depth k. row_at(r) is the result row of the warp's row r, -1 where there is none. 1-bit
/// only: row_ones(r) and column_ones(c) are the popcounts of the operands of its row r and column c. Changes the
/// accumulators.
template <class Product, int m_tiles, int n_tiles, class Writer, class RowAt, class RowOnes, class ColumnOnes>
__device__ void write_tiles(int (&acc)[m_tiles][n_tiles][4], const Writer& writer, int k, int first_column, int lane,
                            const RowAt& row_at, const RowOnes& row_ones, const ColumnOnes& column_ones) {
  static_assert(n_tiles % 4 == 0);
  if constexpr (Product::counts) add_column_ones<Product>(acc, k, Writer::offset, lane, column_ones);
#pragma unroll
  for (int i = 0; i < m_tiles; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int warp_row = 16 * i + 8 * half + lane / 4, row = row_at(warp_row);
      if (row < 0) continue;
      auto* const to = writer.row(row);
      int row_part = 0;
      if constexpr (Product::counts) row_part = 2 * row_ones(warp_row);
#pragma unroll
      for (int eight = 0; eight < n_tiles / 4; ++eight) {
        int sums[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const int sum = acc[i][4 * eight + c / 2][2 * half + c % 2];
          sums[c] = Product::counts ? sum - row_part : Product::finish(sum, k, 0, 0);
        }
        writer.put_eight(to, first_column + lane_columns(lane, eight), sums);
      }
    }
}

/// Writes the results of a tile to 16-bit NCHW planes. Rows are pixels; `run` of them (Results::plane_run) are adjacent
/// in memory where the first one's index is a multiple of `run`. A lane writes `run` pixels of one column.
template <int run, class Product, int m_tiles, int n_tiles, class Writer, class RowAt, class RowOnes, class ColumnOnes>
__device__ void write_planes(int (&acc)[m_tiles][n_tiles][4], const Writer& writer, int n, int k, int first_column,
                             int lane, const RowAt& row_at, const RowOnes& row_ones, const ColumnOnes& column_ones) {
  static_assert(m_tiles % 2 == 0 && (run == 8 || run == 2));
  if constexpr (Product::counts) add_column_ones<Product>(acc, k, Writer::offset, lane, column_ones);
  constexpr int together = run == 8 ? 4 : 1;  // matrices of eight rows
  const int column = first_column + lane / 8 * 8 + lane / 4 % 2;
#pragma unroll
  for (int first = 0; first < 2 * m_tiles; first += together) {
    const int pixel = row_at(8 * first + run * (lane % 4));
    auto* const to = writer.row(max(pixel, 0));
    int row_part[together] = {};
    if constexpr (Product::counts) {
#pragma unroll
      for (int m = 0; m < together; ++m) row_part[m] = 2 * row_ones(8 * (first + m) + lane / 4);
    }
#pragma unroll
    for (int j = 0; j < n_tiles; ++j) {
      unsigned words[together];
#pragma unroll
      for (int m = 0; m < together; ++m) {
        int sums[2];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int sum = acc[(first + m) / 2][j][(first + m) % 2 * 2 + c];
          sums[c] = Product::counts ? sum - row_part[m] : Product::finish(sum, k, 0, 0);
        }
        words[m] = transposed(writer.word(sums[0], sums[1]));
      }
      const int at = column + j / 4 * 32 + j % 4 * 2;
      if constexpr (run == 8) {
        const uint4 pixels = transposed_quad(words[0], words[1], words[2], words[3]);
        if (pixel >= 0 && at < n) writer.put_pixels(to, at, pixels);
      } else {
        if (pixel >= 0 && at < n) writer.put_pixels(to, at, words[0]);
      }
    }
  }
}

/// Blocks that a multiprocessor has to hold, 0 if ptxas decides. For small tiles ptxas would aim at seven, and spill;
/// for the medium tile on windows of signs it would give up the second block for registers that sm_90 code can do
/// without.
template <class Product, class Shape, class Source>
constexpr int mma_blocks() {
  constexpr int small = 64 * 64;
  if (Shape::rows * Shape::columns <= small) return 5;
#if __CUDA_ARCH__ >= 900
  if (counts_rows<Product, Source> && std::is_same_v<Shape, MediumTile>) return 2;
#endif
  return 0;
}

template <class Product, class Shape, class Source>
__global__ void __launch_bounds__(Shape::threads, mma_blocks<Product, Shape, Source>())
    mma_kernel(const __grid_constant__ TileArgs<Source> p) {
  constexpr int a_chunks = Shape::steps * 2, b_chunks = Shape::steps * Product::b_step / 16;
  constexpr int a_bytes = Shape::rows * a_chunks * 16, b_bytes = Shape::columns * b_chunks * 16;
  constexpr int stage_bytes = a_bytes + b_bytes;
  constexpr int threads = Shape::threads;
  constexpr int a_copies = Shape::rows * a_chunks / threads, b_copies = Shape::columns * b_chunks / threads;
  static_assert(a_copies * threads == Shape::rows * a_chunks && b_copies * threads == Shape::columns * b_chunks);
  static_assert(threads % a_chunks == 0 && threads % b_chunks == 0);
  constexpr int m_tiles = Shape::warp_rows / 16, n_tiles = Shape::warp_columns / 8;

  extern __shared__ __align__(128) char shared[];
  const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int across = (p.n + Shape::columns - 1) / Shape::columns;
  const int first_row = static_cast<int>(blockIdx.x / across) * Shape::rows;
  const int first_column = static_cast<int>(blockIdx.x % across) * Shape::columns;

  typename Source::Row rows[a_copies];
  bool row_inside[a_copies];
#pragma unroll
  for (int i = 0; i < a_copies; ++i) {
    const int r = first_row + thread / a_chunks + i * (threads / a_chunks);
    row_inside[i] = r < p.m;
    rows[i] = p.a.row(row_inside[i] ? r : 0);
  }
  const char* columns[b_copies];
  bool column_inside[b_copies];
#pragma unroll
  for (int i = 0; i < b_copies; ++i) {
    const int c = first_column + thread / b_chunks + i * (threads / b_chunks);
    column_inside[i] = c < p.n;
    columns[i] = p.panels + (column_inside[i] ? c : 0) * p.panel_stride;
  }

  // Stages are loaded one behind the other, so a cursor walks along the rows.
  typename Source::Cursor place = p.a.cursor(thread % a_chunks);
  const auto load_stage = [&](int stage) {
    const unsigned to = base + stage % Shape::stages * stage_bytes;
    const int bc = stage * b_chunks + thread % b_chunks;
#pragma unroll
    for (int i = 0; i < a_copies; ++i) {
      bool inside = false;
      const char* from = p.a.chunk(rows[i], place, &inside);
      inside = inside && row_inside[i];
      copy_chunk(to + 16 * swizzled<a_chunks>(thread / a_chunks + i * (threads / a_chunks), thread % a_chunks),
                 inside ? from : p.panels, inside);
    }
    p.a.advance(&place, a_chunks);
#pragma unroll
    for (int i = 0; i < b_copies; ++i) {
      const bool inside = column_inside[i] && bc < p.panel_chunks;
      copy_chunk(
          to + a_bytes +
              16 * swizzled<b_chunks>(stage_row(thread / b_chunks + i * (threads / b_chunks)), thread % b_chunks),
          inside ? columns[i] + bc * chunk_bytes : p.panels, inside);
    }
  };

  int acc[m_tiles][n_tiles][4] = {};
  const int stages = (p.panel_chunks + b_chunks - 1) / b_chunks;
#pragma unroll
  for (int i = 0; i < Shape::stages - 1; ++i) {
    if (i < stages) load_stage(i);
    commit_copies();
  }
  constexpr bool counts = counts_rows<Product, Source>;
  int seen[a_copies] = {};  // ones of the chunks that this thread has copied
  const int warp_row = warp / Shape::column_warps * Shape::warp_rows;
  const int warp_column = warp % Shape::column_warps * Shape::warp_columns;
  for (int stage = 0; stage < stages; ++stage) {
    wait_copies<Shape::stages - 2>();
    __syncthreads();
    if (stage + Shape::stages - 1 < stages) load_stage(stage + Shape::stages - 1);
    commit_copies();
    const unsigned a_base = base + stage % Shape::stages * stage_bytes, b_base = a_base + a_bytes;
    if constexpr (counts) {
#pragma unroll
      for (int i = 0; i < a_copies; ++i)
        seen[i] += ones_of(load_chunk(
            a_base + 16 * swizzled<a_chunks>(thread / a_chunks + i * (threads / a_chunks), thread % a_chunks)));
    }
#pragma unroll
    for (int step = 0; step < Shape::steps; ++step) {
      unsigned a[m_tiles][4], b[n_tiles][2];
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
        load_matrices(a[i], a_base + 16 * swizzled<a_chunks>(warp_row + 16 * i + lane % 16, 2 * step + lane / 16));
      load_columns<Product, Shape>(b, b_base, warp_column, step, lane);
#pragma unroll
      for (int i = 0; i < m_tiles; ++i)
#pragma unroll
        for (int j = 0; j < n_tiles; ++j) Product::mma(acc[i][j], a[i], b[j]);
    }
  }
  wait_copies<0>();

  int* const row_ones = reinterpret_cast<int*>(shared + Shape::stages * stage_bytes);
  if constexpr (counts) {
#pragma unroll
    for (int i = 0; i < a_copies; ++i) {
#pragma unroll
      for (int by = 1; by < a_chunks; by *= 2) seen[i] += __shfl_xor_sync(0xffffffffu, seen[i], by);
      if (thread % a_chunks == 0) row_ones[thread / a_chunks + i * (threads / a_chunks)] = seen[i];
    }
  }
  const float scale = scale_of(p.y);
  const Writer writer(p.y, p.n, scale, poisoned(p));  // which all threads reach together
  const int column = first_column + warp_column;
  const auto row_at = [&](int r) {
    const int row = first_row + warp_row + r;
    return row < p.m ? row : -1;
  };
  const auto ones_of_row = [&](int r) { return counts ? row_ones[warp_row + r] : p.ones[first_row + warp_row + r]; };
  const auto ones_of_column = [&](int c) { return column + c < p.n ? p.panel_ones[column + c] : 0; };
  if constexpr (std::is_same_v<Source, WindowRows>) {
    if (p.y.plane_run == 8) {
      write_planes<8, Product>(acc, writer, p.n, p.k, column, lane, row_at, ones_of_row, ones_of_column);
      return;
    }
    if (p.y.plane_run == 2) {
      write_planes<2, Product>(acc, writer, p.n, p.k, column, lane, row_at, ones_of_row, ones_of_column);
      return;
    }
  }
  if constexpr (std::is_same_v<Source, MatrixRows>) {
    if (p.y.codes()) {
      const Quantiser quantiser = quantiser_of(p.y);
      const CodeWriter codes(p.y, p.n, writer, quantiser);
      write_tiles<Product>(acc, codes, p.k, column, lane, row_at, ones_of_row, ones_of_column);
      return;
    }
  }
  write_tiles<Product>(acc, writer, p.k, column, lane, row_at, ones_of_row, ones_of_column);
}

template <class Product, class Shape, class Source>
Status launch_mma(const TileArgs<Source>& args, const Queue& queue) {
  const std::int64_t blocks = (std::int64_t{args.m} + Shape::rows - 1) / Shape::rows *
                              ((std::int64_t{args.n} + Shape::columns - 1) / Shape::columns);
  return launch(mma_kernel<Product, Shape, Source>, blocks, Shape::threads, tile_shared<Product, Shape, Source>(),
                queue, args);
}

}  // namespace bie::kernels::cuda
