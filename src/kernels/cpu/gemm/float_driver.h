// The driver of products of floats around a tile: rows become blocks once, a slab of them at a time, then every block
// meets a part of a panel before the next panel is read. Plain code.
#pragma once

#include <algorithm>

#include "bie/kernels/gemm.h"
#include "kernels/cpu/gemm/float_tile.h"
#include "kernels/cpu/panels.h"

namespace bie::kernels::cpu {

/// One slab of rows, or one part of k of it: what all blocks and panels share.
struct FloatSlab {
  RowBlocks blocks;
  std::int64_t row;          ///< its first one
  std::int64_t from, depth;  ///< of k
};

/// Blocks [depth][rows of the block], one behind the other. Rows as they are would lie in few sets of the cache where k
/// is a power of two.
inline void fill_blocks(const FloatSlab& slab, const float* x, std::int64_t k, float* blocks,
                        const Parallel& parallel) {
  const std::int64_t work = std::max<std::int64_t>(1, slab.blocks.rows(0) * slab.depth);
  parallel_for(parallel, slab.blocks.count(), std::max<std::int64_t>(1, (1 << 15) / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t b = begin; b < end; ++b) {
                   const int rows = slab.blocks.rows(b);
                   float* const to = blocks + slab.blocks.first(b) * slab.depth;
                   for (int r = 0; r < rows; ++r) {
                     const float* const row = x + (slab.row + slab.blocks.first(b) + r) * k + slab.from;
                     for (std::int64_t i = 0; i < slab.depth; ++i) to[i * rows + r] = row[i];
                   }
                 }
               });
}

/// The first part of k writes y, later ones add to it, the last one adds the bias.
template <class Element>
void multiply_slab(const FloatTile<Element>& tile, const GemmShape& s, const FloatSlab& slab, const float* blocks,
                   const Element* packed, const float* bias, float* y, const Parallel& parallel) {
  constexpr std::int64_t lanes = FloatTile<Element>::lanes, at_once = FloatTile<Element>::most_panels;
  constexpr std::int64_t work_a_task = 1 << 17;
  const std::int64_t panels = (s.n + lanes - 1) / lanes;
  const std::int64_t steps = (panels + at_once - 1) / at_once, count = slab.blocks.count();
  const std::int64_t work = slab.blocks.rows(0) * lanes * at_once * std::max<std::int64_t>(1, slab.depth);
  const bool begins = slab.from == 0, ends = slab.from + slab.depth == s.k;
  parallel_for(parallel, steps * count, std::max<std::int64_t>(1, work_a_task / parallel.fineness / work),
               [&](std::int64_t begin, std::int64_t end) {
                 float sums[FloatTile<Element>::most_rows * FloatTile<Element>::most_panels * lanes];
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t p = item / count * at_once, block = item % count;
                   const int rows = slab.blocks.rows(block), here = static_cast<int>(std::min(at_once, panels - p));
                   const std::int64_t first = p * lanes, width = here * lanes, columns = std::min(width, s.n - first);
                   float* const out = y + (slab.row + slab.blocks.first(block)) * s.n + first;
                   if (begins || columns < width) std::fill_n(sums, rows * width, 0.0f);
                   for (int r = 0; r < rows && !begins; ++r) std::copy_n(out + r * s.n, columns, sums + r * width);
                   tile.run(blocks + slab.blocks.first(block) * slab.depth, rows,
                            packed + (p * s.k + slab.from) * lanes, s.k * lanes, here, slab.depth, sums);
                   for (int r = 0; r < rows; ++r) {
                     const float* const sum = sums + r * width;
                     if (ends && bias != nullptr)
                       for (std::int64_t j = 0; j < columns; ++j) out[r * s.n + j] = sum[j] + bias[first + j];
                     else
                       std::copy_n(sum, columns, out + r * s.n);
                   }
                 }
               });
}

template <class Element>
Status run_float_gemm(const FloatTile<Element>& tile, const GemmShape& s, const float* x, const Element* packed,
                      const float* bias, float* y, const Parallel& parallel) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (s.m == 0 || s.n == 0) return Status::ok;
  // A slab takes at most half a MiB, which the second cache keeps while panels pass, or 256 rows. One or two blocks
  // take all of k, as a weight is then read once anyway.
  constexpr std::int64_t slab_floats = 1 << 17, depth_at_once = 512, least_rows = 256;
  const std::int64_t slab_depth = s.m <= 2 * tile.most ? s.k : std::min(s.k, depth_at_once);
  const std::int64_t slab_rows =
      std::min(s.m, std::max(least_rows, slab_floats / std::max<std::int64_t>(1, slab_depth)));
  auto* const memory =
      s.m == 1 ? nullptr
               : static_cast<float*>(workspace(static_cast<std::size_t>(slab_rows * slab_depth) * sizeof(float)));
  if (memory == nullptr && s.m > 1 && s.k > 0) return Status::out_of_memory;
  for (std::int64_t row = 0; row < s.m; row += slab_rows) {
    const RowBlocks blocks(std::min(slab_rows, s.m - row), tile.most, 1);
    std::int64_t from = 0;
    do {
      const FloatSlab slab{blocks, row, from, std::min(slab_depth, s.k - from)};
      if (s.m > 1) fill_blocks(slab, x, s.k, memory, parallel);
      multiply_slab(tile, s, slab, s.m == 1 ? x : memory, packed, bias, y, parallel);
      from += slab_depth;
    } while (from < s.k);
  }
  return Status::ok;
}

}  // namespace bie::kernels::cpu
