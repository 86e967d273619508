// The kernels of weight_only_gemm, best first, and their driver: the activation becomes blocks of float rows once, then
// every block meets every panel.
#include "bie/kernels/weight_only_gemm.h"

#include <algorithm>
#include <atomic>

#include "kernels/check.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/passes.h"
#include "kernels/cpu/weight_panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace cpu {
namespace {

constexpr std::int64_t task_work = std::int64_t{1} << 20;  // products that make a task worth a thread

/// Blocks of nearly equal numbers of rows, each [k][rows] floats and [groups][rows] sums.
class Blocks {
 public:
  Blocks(std::int64_t m, int most, const WeightHead& head)
      : m_(m), count_((m + most - 1) / most), k_(head.k), groups_(head.offset == Offset::none ? 0 : head.groups) {}

  std::int64_t count() const { return count_; }
  std::int64_t first(std::int64_t block) const { return block * m_ / count_; }
  int rows(std::int64_t block) const { return static_cast<int>(first(block + 1) - first(block)); }
  std::size_t bytes() const { return static_cast<std::size_t>(4 * m_ * (k_ + groups_)); }
  float* x(std::int64_t block, float* memory) const { return memory + first(block) * k_; }
  float* sums(std::int64_t block, float* memory) const {
    return groups_ == 0 ? nullptr : memory + m_ * k_ + first(block) * groups_;
  }

 private:
  std::int64_t m_, count_, k_, groups_;
};

/// Rows of the activation in the panels' order of k, side by side, and their sums. `row` has room for 2 k floats.
void fill_block(const WeightOnlyPasses& passes, const void* packed, const FloatRows& x, std::int64_t first, int rows,
                float* row, float* out, float* sums) {
  const WeightHead& head = head_of(packed);
  const auto* const inputs = reinterpret_cast<const std::int32_t*>(static_cast<const char*>(packed) + head.inputs_at);
  for (int r = 0; r < rows; ++r) {
    const bool lone = rows == 1, gathers = head.inputs_at != 0;
    float* const wide = lone && !gathers ? out : row;
    passes.floats(static_cast<const char*>(x.data) + (first + r) * x.row_stride, x.dtype, x.factor, head.k, wide);
    float* ordered = wide;
    if (gathers) {
      ordered = lone ? out : row + head.k;
      for (std::int64_t t = 0; t < head.k; ++t) ordered[t] = wide[inputs[t]];
    }
    if (!lone)
      for (std::int64_t t = 0; t < head.k; ++t) out[t * rows + r] = ordered[t];
    if (sums == nullptr) continue;
    for (std::int64_t g = 0; g < head.groups; ++g) {
      const std::int32_t count = groups_of(packed)[g].rows;
      sums[g * rows + r] = passes.sum(ordered, count);
      ordered += count;
    }
  }
}

constexpr std::int64_t slab_rows = 1008;  // whose floats are kept at once: 16 MiB for k = 4096

/// At most slab_rows rows of a product that is proved to fit.
Status run_slab(const WeightOnlyTile& tile, const WeightOnlyPasses& passes, const GemmShape& s, const FloatRows& x,
                const void* packed, const FloatResults& y, const Parallel& parallel) {
  const WeightHead& head = head_of(packed);
  const Blocks blocks(s.m, tile.rows, head);
  const std::size_t row_floats = static_cast<std::size_t>(2 * head.k);
  auto* const memory = static_cast<float*>(workspace(blocks.bytes()));
  if (memory == nullptr && blocks.bytes() > 0) return Status::out_of_memory;
  std::atomic<bool> enough{true};
  const std::int64_t fill_grain = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(1, tile.rows * s.k));
  parallel_for(parallel, blocks.count(), fill_grain, [&](std::int64_t begin, std::int64_t end) {
    auto* const row = static_cast<float*>(workspace(std::max<std::size_t>(64, 4 * row_floats), Buffer::tile));
    if (row == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    for (std::int64_t b = begin; b < end; ++b)
      fill_block(passes, packed, x, blocks.first(b), blocks.rows(b), row, blocks.x(b, memory), blocks.sums(b, memory));
  });
  if (!enough.load()) return Status::out_of_memory;

  // Panels of one row go several at a time: with one its sums would wait for one another.
  const int at_once = s.m == 1 ? tile.panels : 1;
  const std::int64_t steps = (head.panels + at_once - 1) / at_once;
  const std::int64_t work = std::max<std::int64_t>(1, s.m / blocks.count() * panel_columns * at_once * s.k);
  const std::int64_t grain = std::max<std::int64_t>(1, task_work / work);
  const std::size_t result_bytes = 4 * panel_columns * static_cast<std::size_t>(std::max(tile.rows, tile.panels));
  const WorkOrder order(blocks.count(), steps, parallel.threads);
  parallel_for(parallel, order.count(), grain, [&](std::int64_t begin, std::int64_t end) {
    auto* const results = static_cast<float*>(workspace(result_bytes, Buffer::tile));
    if (results == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    for (std::int64_t item = begin; item < end; ++item) {
      const auto [block, step] = order.item(item);
      const std::int64_t panel = step * at_once, column = panel * panel_columns;
      const int panels = static_cast<int>(std::min<std::int64_t>(at_once, head.panels - panel));
      const int rows = blocks.rows(block);
      const std::int64_t columns = std::min<std::int64_t>(panels * panel_columns, s.n - column);
      char* const out = static_cast<char*>(y.data) + blocks.first(block) * y.row_stride + row_bytes(y.dtype, column);
      // Whole panels of one row are summed where they are to lie. Of several rows they would share sets of the cache.
      const bool direct = rows == 1 && y.dtype == Dtype::f32 && y.bias == nullptr && y.row_stride % 4 == 0 &&
                          columns == panels * panel_columns;
      tile.run({blocks.x(block, memory), blocks.sums(block, memory), groups_of(packed), head.groups,
                static_cast<const char*>(packed) + head.panels_at + panel * head.panel_bytes, head.panel_bytes, panels,
                rows, head.scale, head.offset, direct ? reinterpret_cast<float*>(out) : results,
                direct ? y.row_stride / 4 : panels * panel_columns});
      for (int r = 0; r < rows && !direct; ++r)
        passes.results(results + r * panels * panel_columns, y.bias == nullptr ? nullptr : y.bias + column, columns,
                       out + r * y.row_stride, y.dtype);
    }
  });
  return enough.load() ? Status::ok : Status::out_of_memory;
}

Status run_weight_only(const WeightOnlyTile& tile, const WeightOnlyPasses& passes, const GemmShape& s,
                       const FloatRows& x, const void* packed, const FloatResults& y, const Parallel& parallel) {
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
    const Status status = run_slab(tile, passes, slab, from, packed, to, parallel);
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

template <const WeightOnlyTile& tile, const WeightOnlyPasses& passes>
constexpr WeightOnlyGemmKernel kernel(const char* name, Isa isa) {
  return {name,
          isa,
          nullptr,
          weight_panel_bytes,
          pack_weight_panels,
          [](const GemmShape& shape, const FloatRows& x, const void* packed, const FloatResults& y,
             const Parallel& parallel) { return run_weight_only(tile, passes, shape, x, packed, y, parallel); }};
}

}  // namespace
}  // namespace cpu

Table<WeightOnlyGemmKernel> weight_only_gemm_table() {
  static const WeightOnlyGemmKernel best_first[] = {
#if defined(BIE_X86)
    cpu::kernel<cpu::avx512bw::weight_only_tile, cpu::avx2::weight_only_passes>("weight_only_gemm_avx512bw",
                                                                                Isa::avx512bw),
    cpu::kernel<cpu::avx2::weight_only_tile, cpu::avx2::weight_only_passes>("weight_only_gemm_avx2", Isa::avx2),
#endif
#if defined(BIE_ARM)
    cpu::kernel<cpu::neon::weight_only_tile, cpu::plain::weight_only_passes>("weight_only_gemm_neon", Isa::neon),
#endif
    cpu::kernel<cpu::plain::weight_only_loops, cpu::plain::weight_only_passes>("weight_only_gemm_portable",
                                                                               Isa::portable),
    reference::weight_only_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
