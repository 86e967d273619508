// The product of few rows with panels of codes, on tensor cores (mma.sync, sm_80 and later). The weight is the left
// operand: 16 outputs, opened in registers; rows of the activation are the eight columns of the right one. Warps of a
// block stand side by side along the outputs and behind one another along the slots. Each lane copies the codes that it
// opens through a ring of its own in shared memory. Few rows of the activation are put there whole before the loop; of
// more, warps side by side fill a ring. The sums of warps behind one another, and of the blocks of a cluster, meet in
// shared memory. The operands and their product are a Product: weight_only_float_tile.cuh, weight_only_int8_tile.cuh.
//
//     width, chunk_bytes    bits of a code, bytes of an activation's chunk
//     stride(bytes)         of a row of so many bytes in shared memory
//     place(row, column)    of 16 bytes of a row there, so that no banks meet
//     early                 whether there are registers to read rows a chunk before their use
//     Args                  the kernel's arguments
//     Row, load             what a lane reads of chunk_at(), from its place() in row lane % 8 and its column_of()
//     Sums<S>               what a warp adds up, and what it asks for of a group's weight and rows
//     put_whole             copies whole rows of a block, whole_bytes() of them; where shapes are `whole`
//
// How a launch is shared out is in weight_only_launch.cuh.
#pragma once

#include <cooperative_groups.h>

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/named_barrier.cuh"
#include "kernels/cuda/weight_only_put.cuh"

namespace bie::kernels::cuda::weight_only {

constexpr int threads = 256, warps = threads / 32, most_shared = 220 * 1024;

/// Tiles of a warp, groups of eight rows, warps side by side along the outputs, and the blocks that a multiprocessor is
/// to hold. With `whole` all of a block's slots of the activation are copied before the loop.
template <int tiles_, int rows8_, int beside_, int blocks_, bool whole_>
struct Shape {
  static constexpr int tiles = tiles_, rows8 = rows8_, beside = beside_, behind = warps / beside, blocks = blocks_;
  static constexpr bool whole = whole_;
  static constexpr int behind_bits = behind == 8 ? 3 : behind == 4 ? 2 : 1;
  static_assert(1 << behind_bits == behind);
  static constexpr int outputs = tile_outputs * tiles * beside, rows = 8 * rows8;
  static constexpr int stride = outputs + 4;  ///< of a row of sums in shared memory, so that no banks meet
  static constexpr int sum_bytes = behind * rows * stride * 4;
};

/// The rings of a warp: a stage is one step.
template <class P, class S>
struct Ring {
  static constexpr int stages = !S::whole && P::width == 1 ? 2 : 4;
  static constexpr int code_bytes = warps * stages * S::tiles * step_bytes;
  static constexpr int row_bytes = P::chunk_bytes * step_chunks(P::width), row_stride = P::stride(row_bytes);
  static constexpr int rows_bytes = S::whole ? 0 : S::behind * stages * S::rows * row_stride;
  static_assert(code_bytes + rows_bytes <= most_shared);
};

/// Where a lane's records of the next group are.
template <int tiles>
struct Records {
  const char* at[tiles];

  /// Tiles beyond the last one repeat it.
  __device__ void begin(const Args& p, int tile, int run, int row) {
#pragma unroll
    for (int t = 0; t < tiles; ++t)
      at[t] = p.records + (std::int64_t{min(tile + t, p.tiles - 1)} * p.runs + run) * p.record_bytes +
              row * (p.record_bytes / 8);
  }
  __device__ void read(const Args& p, Record (&records)[tiles]) const {
#pragma unroll
    for (int t = 0; t < tiles; ++t) records[t] = Record::at(at[t], p.wide_scales);
  }
  __device__ void step(const Args& p) {
#pragma unroll
    for (int t = 0; t < tiles; ++t) at[t] += p.record_bytes;
  }
};

/// Blocks of a multiprocessor that registers are kept free for: on Hopper, where they were chosen, as many as wanted.
constexpr int kept_blocks(int wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  return wanted < 2 ? wanted : 2;
#else
  return wanted;
#endif
}

template <class P, class S>
__global__ void __launch_bounds__(threads, kept_blocks(S::blocks))
    tile_kernel(const __grid_constant__ typename P::Args p) {
  extern __shared__ __align__(1024) float shared[];  // what places in rows take for granted
  using R = Ring<P, S>;
  constexpr int in_step = step_chunks(P::width), depth = R::stages;
  constexpr int early = S::whole || S::rows8 > 4 || !P::early ? 0 : 1;  // chunks that rows are read before their use
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, beside = warp % S::beside, behind = warp / S::beside;
  const int split = blockIdx.x & (p.splits - 1), block = static_cast<int>(blockIdx.x) >> p.split_bits;
  const int tile = (block * S::beside + beside) * S::tiles;
  // Where the steps of a part begin; there are at most 2^26 of them and 64 parts.
  const auto step_of = [&](int part) {
    return static_cast<int>(static_cast<unsigned>(p.steps) * static_cast<unsigned>(part) >>
                            (p.split_bits + S::behind_bits));
  };
  const int first = step_of(split * S::behind + behind), last = step_of(split * S::behind + behind + 1);
  let_next_start();

  const unsigned memory = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const unsigned own_codes = memory + (warp * depth * S::tiles * 32 + lane) * 16;
  const uint4* codes[S::tiles];
#pragma unroll
  for (int t = 0; t < S::tiles; ++t)  // tiles beyond the last one repeat it
    codes[t] = p.codes + (std::int64_t{min(tile + t, p.tiles - 1)} * p.steps + first) * 32 + lane;
  const auto load_codes = [&](int stage) {  // of the next step
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) {
      copy_chunk(own_codes + (stage * S::tiles + t) * step_bytes, codes[t], true);
      codes[t] += 32;
    }
  };

  // The activation: whole rows of the block, or a ring for the warps side by side.
  const int rows = p.m * p.parts, from = step_of(split * S::behind), steps = step_of((split + 1) * S::behind) - from;
  const int row_stride = S::whole ? P::stride(steps * R::row_bytes) : R::row_stride;
  const unsigned rows_at = memory + R::code_bytes + (S::whole ? 0 : behind * depth * S::rows * R::row_stride);
  constexpr int in_row = R::row_bytes / 16, crew = S::beside * 32, rows_at_once = crew / in_row;
  static_assert(S::whole || crew % in_row == 0);
  const int own_row = (beside * 32 + lane) / in_row, own_column = lane % in_row;
  const char* own_x = p.x + own_row * p.x_stride + std::int64_t{first} * R::row_bytes + own_column * 16;
  int columns_left = (p.chunks - first * in_step) * (P::chunk_bytes / 16) - own_column;
  const auto load_rows = [&](int stage) {
#pragma unroll
    for (int i = 0; i < (S::rows + rows_at_once - 1) / rows_at_once; ++i)
      if (own_row + i * rows_at_once < rows && columns_left > 0)
        copy_chunk(rows_at + (stage * S::rows + own_row + i * rows_at_once) * R::row_stride +
                       P::place(own_row + i * rows_at_once, own_column),
                   own_x + i * rows_at_once * p.x_stride, true);
    own_x += R::row_bytes;
    columns_left -= in_row;
  };

  // Start loading the weight before the activation is available.
  typename P::template Sums<S> sums;
  const int first_chunk = first * in_step, end_chunk = min(last * in_step, p.chunks);
  int run = first_chunk / p.group_chunks, left = p.group_chunks - (first_chunk - run * p.group_chunks);
  Records<S::tiles> records;
  const auto ask_next = [&] {
    if (run + 1 >= p.runs) return;
    records.step(p);
    sums.ask(p, run + 1, records);
  };
  if (first_chunk < end_chunk) {
    records.begin(p, tile, run, lane / 4);
    sums.ask(p, run, records);
    const int bytes = ((end_chunk - 1) / p.group_chunks - run + 1) * p.record_bytes;
#pragma unroll
    for (int t = 0; t < S::tiles; ++t)
      if (tile + t < p.tiles)
        for (int i = lane * 128; i < bytes; i += 32 * 128)
          prefetch(p.records + ((tile + t) * p.runs + run) * p.record_bytes + i);
  }
#pragma unroll
  for (int d = 0; d < depth - 1; ++d) {
    if (first + d < last) load_codes(d);
    if (S::whole) commit_copies();
  }
  wait_for_previous_kernel();
  if constexpr (S::whole) {
    P::put_whole(p, from * in_step, min((from + steps) * in_step, p.chunks), rows_at, row_stride);
    commit_copies();
  } else {
#pragma unroll
    for (int d = 0; d < depth - 1; ++d) {
      if (first + d < last) load_rows(d);
      commit_copies();
    }
  }

#pragma unroll
  for (int t = 0; t < S::tiles; ++t)
#pragma unroll
    for (int j = 0; j < S::rows8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.sum[t][j][i] = 0;
  if (first_chunk < end_chunk) {
    sums.begin(p);
    ask_next();
  }
  if constexpr (S::whole) {
    wait_copies<0>();
    __syncthreads();
  }
  if (first_chunk < end_chunk) {
    sums.ask_rows(p, run, lane);
    sums.begin_rows();
    if (run + 1 < p.runs) sums.ask_rows(p, run + 1, lane);
    if (left < p.group_chunks) sums.share_group();
  }
  // Rows that are not there repeat one or hold anything: a column of a product has its own row alone.
  const int read_row = S::whole ? min(lane % 8, rows - 1) : lane % 8;
  unsigned own_row_at = rows_at + read_row * row_stride + P::place(read_row, P::column_of(lane));
  if (S::whole) own_row_at += (first - from) * R::row_bytes;
  int stage = 0, chunks_left = end_chunk - first_chunk;
#pragma unroll 1
  for (int step = first; step < last; ++step) {
    const int next = stage == 0 ? depth - 1 : stage - 1;
    if (!S::whole || step > first) wait_copies<depth - 2>();
    if constexpr (!S::whole && S::beside > 1)
      wait_at<S::beside * 32>(behind + 1);
    else
      __syncwarp();
    if (step + depth - 1 < last) {
      load_codes(next);
      if constexpr (!S::whole) load_rows(next);
    }
    commit_copies();
    uint4 opened[S::tiles];
#pragma unroll
    for (int t = 0; t < S::tiles; ++t) opened[t] = load_chunk(own_codes + (stage * S::tiles + t) * step_bytes);
    const unsigned at = S::whole ? own_row_at : own_row_at + stage * S::rows * R::row_stride;
    typename P::Row of_rows[1 + early][S::rows8];  // of this chunk and, early, of the next
    const auto load_rows_of_chunk = [&](int c) {
#pragma unroll
      for (int j = 0; j < S::rows8; ++j)
        of_rows[c % (1 + early)][j] = P::load(P::chunk_at(at, c) + 8 * j * R::row_stride);
    };
    if (early) load_rows_of_chunk(0);
#pragma unroll
    for (int c = 0; c < in_step; ++c) {
      if (in_step > 1 && c >= chunks_left) break;
      if (c + early < in_step) load_rows_of_chunk(c + early);
      sums.chunk(opened, c, of_rows[c % (1 + early)]);
      if (--left == 0) {
        sums.end();
        left = p.group_chunks;
        ++run;
        sums.begin(p);
        sums.begin_rows();
        ask_next();
        if (run + 1 < p.runs) sums.ask_rows(p, run + 1, lane);
      }
    }
    chunks_left -= in_step;
    if (S::whole) own_row_at += R::row_bytes;
    stage = stage == depth - 1 ? 0 : stage + 1;
  }
  if (first_chunk < end_chunk && left < p.group_chunks) sums.end();
  wait_copies<0>();
  __syncthreads();  // the rings become room for sums

  // A row of sums for every row of the activation and every warp behind another.
  float* const own = shared + behind * S::rows * S::stride + beside * S::tiles * tile_outputs;
#pragma unroll
  for (int t = 0; t < S::tiles; ++t)
#pragma unroll
    for (int j = 0; j < S::rows8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        own[(8 * j + lane % 4 * 2 + i % 2) * S::stride + t * tile_outputs + i / 2 * 8 + lane / 4] = sums.sum[t][j][i];
  __syncthreads();
  const auto of_block = [](const float* from, int at) {
    float sum = from[at];
#pragma unroll
    for (int b = 1; b < S::behind; ++b) sum += from[b * S::rows * S::stride + at];
    return sum;
  };
  const auto write = [&](int i, const auto& value_at) {
    const int column = i % S::outputs, row = i / S::outputs;
    float value = value_at(row * S::stride + column);
    for (int part_of_x = 1; part_of_x < p.parts; ++part_of_x)
      value += value_at((row + part_of_x * p.m) * S::stride + column);
    if (block * S::outputs + column < p.n) put(p, row, block * S::outputs + column, value);
  };
#if __CUDA_ARCH__ >= 900
  if (p.splits > 1) {
    const auto cluster = cooperative_groups::this_cluster();
    for (int i = threadIdx.x; i < rows * S::outputs; i += threads) {
      const int at = i / S::outputs * S::stride + i % S::outputs;
      shared[at] = of_block(shared, at);
    }
    cluster.sync();
    const int wanted = p.m * S::outputs;
    for (int i = split * threads + threadIdx.x; i < wanted; i += p.splits * threads)
      write(i, [&](int at) {
        float sum = 0;
        for (int s = 0; s < p.splits; ++s) sum += cluster.map_shared_rank(shared, s)[at];
        return sum;
      });
    cluster.sync();
    return;
  }
#endif
  for (int i = threadIdx.x; i < p.m * S::outputs; i += threads) write(i, [&](int at) { return of_block(shared, at); });
}

}  // namespace bie::kernels::cuda::weight_only
