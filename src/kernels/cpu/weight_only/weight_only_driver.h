// The driver of weight-only products, of float and of integer activations: the activation becomes blocks of rows once,
// then every block meets every panel. Plain code.
//
// A Side is one kind of activation: its tile, what a row of a block takes and how it is put there, and one call of the
// tile. A block of R rows has R * row_bytes of memory, and the last one `slack` more that may be read. Where it keeps
// panels, every block meets a panel before the next panel is read; else a block meets every panel.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bie/kernels/weight_only_gemm.h"
#include "kernels/check.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu {

/// Panels that lie side by side, and where their results go.
struct PanelsOfTile {
  const void* packed;
  const char* panel;
  int count;
  float* y;
  std::int64_t y_stride;  ///< floats from one row to the next
};

/// Rows of the activation as floats in the panels' order of k, put into a block. `row` has room for 2 k floats.
template <class Side>
void fill_block(const Side& side, const void* packed, const FloatRows& x, std::int64_t first, int rows, float* row,
                char* block) {
  const WeightHead& head = head_of(packed);
  const auto* const inputs = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(packed) + head.inputs_at);
  for (int r = 0; r < rows; ++r) {
    const bool gathers = head.inputs_at != 0;
    float* const last = rows == 1 ? side.lone_row(block, gathers ? row + head.k : row) : row + (gathers ? head.k : 0);
    float* const wide = gathers ? row : last;
    side.passes.floats(static_cast<const char*>(x.data) + (first + r) * x.row_stride, x.dtype, x.factor, head.k, wide);
    if (gathers)
      for (std::int64_t t = 0; t < head.k; ++t) last[t] = wide[inputs[t]];
    side.put(packed, last, rows, r, block);
  }
}

/// Multiplies one slab; the sizes were checked.
template <class Side>
Status run_slab(const Side& side, const GemmShape& s, const FloatRows& x, const void* packed, const FloatResults& y,
                const Parallel& parallel) {
  // Least number of products per task.
  const std::int64_t task_work = (std::int64_t{1} << 20) / parallel.fineness;
  const WeightHead& head = head_of(packed);
  const RowBlocks blocks(s.m, side.rows, side.unit());
  const std::int64_t bytes_of_row = side.row_bytes(head);
  const std::size_t bytes = static_cast<std::size_t>(s.m * bytes_of_row + side.slack());
  auto* const memory = static_cast<char*>(workspace(bytes));
  if (memory == nullptr && bytes > 0) return Status::out_of_memory;
  const auto block_at = [&](std::int64_t b) { return memory + blocks.first(b) * bytes_of_row; };
  std::atomic<bool> enough{true};
  const std::size_t row_floats = static_cast<std::size_t>(2 * head.k);
  const std::int64_t fill_grain =
      std::max<std::int64_t>(1, 32768 / parallel.fineness / std::max<std::int64_t>(1, side.rows * s.k));
  parallel_for(parallel, blocks.count(), fill_grain, [&](std::int64_t begin, std::int64_t end) {
    auto* const row = static_cast<float*>(workspace(std::max<std::size_t>(64, 4 * row_floats), Buffer::tile));
    if (row == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    for (std::int64_t b = begin; b < end; ++b)
      fill_block(side, packed, x, blocks.first(b), blocks.rows(b), row, block_at(b));
  });
  if (!enough.load()) return Status::out_of_memory;

  // For one row, several panels are computed at a time: the sums of a single panel would be one dependency chain.
  const int at_once = s.m == 1 ? side.panels : 1;
  const std::int64_t steps = (head.panels + at_once - 1) / at_once;
  const std::int64_t work = std::max<std::int64_t>(1, s.m / blocks.count() * panel_columns * at_once * s.k);
  const std::int64_t grain = std::max<std::int64_t>(1, task_work / work);
  const std::size_t result_bytes = 4 * panel_columns * static_cast<std::size_t>(std::max(side.rows, side.panels));
  // Where panels are kept, all blocks of a share pass by each panel, and are to stay in the second cache.
  constexpr std::int64_t cached_bytes = std::int64_t{512} << 10;
  const std::int64_t cached = cached_bytes / std::max<std::int64_t>(1, bytes_of_row * side.rows);
  const WorkOrder order = Side::keeps_panels
                              ? WorkOrder(steps, blocks.count(), parallel.threads, std::max<std::int64_t>(1, cached))
                              : WorkOrder(blocks.count(), steps, parallel.threads);
  parallel_for(parallel, order.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    auto* const results = static_cast<float*>(workspace(result_bytes, Buffer::tile));
    if (results == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    side.enter();
    for (std::int64_t item = begin; item < end; ++item) {
      const auto [outer, inner] = order.item(item);
      const std::int64_t block = Side::keeps_panels ? inner : outer, step = Side::keeps_panels ? outer : inner;
      const std::int64_t panel = step * at_once, column = panel * panel_columns;
      const int panels = static_cast<int>(std::min<std::int64_t>(at_once, head.panels - panel));
      const int rows = blocks.rows(block);
      const std::int64_t columns = std::min<std::int64_t>(panels * panel_columns, s.n - column);
      char* const out = static_cast<char*>(y.data) + blocks.first(block) * y.row_stride + row_bytes(y.dtype, column);
      // For one row, whole panels are summed in place in the output. For several rows, the outputs would compete for
      // the same sets of the cache.
      const bool direct = rows == 1 && y.dtype == Dtype::f32 && y.bias == nullptr && y.row_stride % 4 == 0 &&
                          columns == panels * panel_columns;
      side.tile(block_at(block), rows,
                {packed, static_cast<const char*>(packed) + head.panels_at + panel * head.panel_bytes, panels,
                 direct ? reinterpret_cast<float*>(out) : results, direct ? y.row_stride / 4 : panels * panel_columns});
      for (int r = 0; r < rows && !direct; ++r)
        side.passes.results(results + r * panels * panel_columns, y.bias == nullptr ? nullptr : y.bias + column,
                            columns, out + r * y.row_stride, y.dtype);
    }
    side.leave();
  });
  return enough.load() ? Status::ok : Status::out_of_memory;
}

template <class Side>
Status run_weight_only(const Side& side, const GemmShape& s, const FloatRows& x, const void* packed,
                       const FloatResults& y, const Parallel& parallel) {
  constexpr std::int64_t slab_rows = 1008;  // whose blocks are kept at once: 16 MiB of floats for k = 4096
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (!is_float(x.dtype) || !is_float(y.dtype)) return Status::bad_dtype;
  if (s.m == 0 || s.n == 0) return Status::ok;
  if (head_of(packed).n != s.n || head_of(packed).k != s.k) return Status::bad_shape;
  for (std::int64_t first = 0; first < s.m; first += slab_rows) {
    const GemmShape slab{std::min(slab_rows, s.m - first), s.n, s.k};
    FloatRows from = x;
    FloatResults to = y;
    from.data = static_cast<const char*>(x.data) + first * x.row_stride;
    to.data = static_cast<char*>(y.data) + first * y.row_stride;
    const Status status = run_slab(side, slab, from, packed, to, parallel);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

}  // namespace bie::kernels::cpu
