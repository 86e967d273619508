// The kernels of double_gemm, best first, and their driver.
#include "bie/kernels/double_gemm.h"

#include <algorithm>

#include "bie/kernels/isa.h"
#include "kernels/cpu/gemm/double_gemm.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace {

constexpr std::int64_t rows_a_task = 128, depth = 128;  // a panel of the widest tile takes 24 KiB

/// Rows [row, row + rows) and columns [first, first + columns) of c.
struct Part {
  std::int64_t row, rows, first, columns;
};

/// Rows [from, from + k) of the columns, zeros behind the last one.
template <int width>
void open_panel(const DoubleGemm& g, const Part& part, std::int64_t from, std::int64_t k, double* panel) {
  const double* row = g.b.data + from * g.b.row + part.first * g.b.column;
  for (std::int64_t p = 0; p < k; ++p, row += g.b.row, panel += width) {
    if (part.columns == width && g.b.column == 1) {
      std::copy_n(row, width, panel);
    } else {
      for (int j = 0; j < width; ++j) panel[j] = j < part.columns ? row[j * g.b.column] : 0.0;
    }
    if (g.subtract)
      for (int j = 0; j < width; ++j) panel[j] = -panel[j];
  }
}

template <const cpu::DoubleGemmTile& tile, int width>
void multiply(const DoubleGemm& g, const Part& part) {
  double panel[depth * cpu::DoubleGemmTile::most_columns];
  double sums[cpu::DoubleGemmTile::most_rows * cpu::DoubleGemmTile::most_columns] = {};
  for (std::int64_t from = 0; from < g.k; from += depth) {
    const std::int64_t k = std::min(depth, g.k - from);
    open_panel<width>(g, part, from, k, panel);
    for (std::int64_t at = 0; at < part.rows; at += tile.rows) {
      const std::int64_t row = part.row + at;
      const int count = static_cast<int>(std::min<std::int64_t>(tile.rows, part.rows - at));
      double* const c = g.c + row * g.c_row + part.first;
      for (int r = 0; r < count; ++r) std::copy_n(c + r * g.c_row, part.columns, sums + r * width);
      tile.run(g.a.data + row * g.a.row + from * g.a.column, g.a.row, g.a.column, count, panel, k, sums);
      for (int r = 0; r < count; ++r) std::copy_n(sums + r * width, part.columns, c + r * g.c_row);
    }
  }
}

template <const cpu::DoubleGemmTile& tile, int width>
Status run(const DoubleGemm& g, const Parallel& parallel) {
  if (g.m < 0 || g.n < 0 || g.k < 0) return Status::bad_shape;
  const std::int64_t panels = (g.n + width - 1) / width, blocks = (g.m + rows_a_task - 1) / rows_a_task;
  constexpr std::int64_t work_a_task = 1 << 17;
  const std::int64_t work = std::min(rows_a_task, g.m) * width * std::max<std::int64_t>(1, g.k);
  parallel_for(parallel, panels * blocks,
               std::max<std::int64_t>(1, work_a_task / parallel.fineness / std::max<std::int64_t>(1, work)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t item = begin; item < end; ++item) {
                   const std::int64_t first = item / blocks * width, row = item % blocks * rows_a_task;
                   multiply<tile, width>(
                       g, {row, std::min(rows_a_task, g.m - row), first, std::min<std::int64_t>(width, g.n - first)});
                 }
               });
  return Status::ok;
}

}  // namespace

Table<DoubleGemmKernel> double_gemm_table() {
  static const DoubleGemmKernel best_first[] = {
#if defined(BIE_X86)
    {"double_gemm_avx512bw", Isa::avx512bw, nullptr, run<cpu::avx512bw::double_gemm_tile, 24>},
    {"double_gemm_avx2", Isa::avx2, nullptr, run<cpu::avx2::double_gemm_tile, 12>},
#endif
    {"double_gemm_portable", Isa::portable, nullptr, run<cpu::portable::double_gemm_tile, 3>},
    reference::double_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
