// The kernels of mixed_gemm, best first, and the driver around a tile: some rows of a are arranged once, then blocks of
// them that stay in a core's second cache meet panels of b, which are opened where they are used.
#include "kernels/cpu/gemm/mixed_gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "kernels/cpu/panels.h"
#include "kernels/reference/reference.h"

namespace bie::kernels {
namespace cpu {
namespace {

constexpr std::int64_t rows_at_once = 1024;  // about
constexpr std::int64_t block_bytes = 1 << 20;
constexpr std::int64_t task_work = std::int64_t{1} << 20;  // products

std::int64_t whole(std::int64_t count, std::int64_t part) { return (count + part - 1) / part; }

/// Some rows of y and some of the sum.
struct Section {
  std::int64_t row, rows, l, ks;
};

/// False where there is no memory.
bool run_section(const MixedTile& tile, const GemmShape& s, const MixedGemmInput& in, float scale, float* y,
                 const Section& at, char* arranged, const Parallel& parallel) {
  const std::int64_t padded = whole(at.ks, tile.step) * tile.step, tiles = whole(at.rows, tile.rows);
  const std::int64_t tile_bytes = padded * tile.rows * tile.a_bytes;
  const std::int64_t split_grain = std::max<std::int64_t>(1, 32768 / (tile.rows * at.ks));
  parallel_for(parallel, tiles, split_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = t * tile.rows;
      const std::int64_t first = (at.row + row) * in.a_row + at.l * in.a_column;
      tile.split({static_cast<const char*>(in.a) + row_bytes(in.a_dtype, first), in.a_row, in.a_column,
                  static_cast<int>(std::min<std::int64_t>(tile.rows, at.rows - row)), at.ks,
                  arranged + t * tile_bytes});
    }
  });

  const std::int64_t panels = whole(s.n, tile.columns), element = row_bytes(in.b_dtype, 1);
  const std::int64_t panel_bytes = padded * tile.columns * tile.b_bytes;
  const auto columns_of = [&](std::int64_t panel) {
    return static_cast<int>(std::min<std::int64_t>(tile.columns, s.n - panel * tile.columns));
  };
  const auto open = [&](std::int64_t panel, void* out) {
    const std::int64_t first = at.l * s.n + panel * tile.columns;
    tile.open({static_cast<const char*>(in.b) + first * element, in.b_dtype, s.n, columns_of(panel), at.ks, out});
  };
  const bool last = at.l + at.ks == s.k;
  const auto multiply = [&](std::int64_t t, std::int64_t panel, const void* opened) {
    const std::int64_t row = t * tile.rows;
    tile.run({arranged + t * tile_bytes, opened, at.ks,
              static_cast<int>(std::min<std::int64_t>(tile.rows, at.rows - row)), columns_of(panel),
              y + (at.row + row) * s.n + panel * tile.columns, s.n, at.l > 0, last ? scale : 1.0f});
  };
  const auto grain_of = [&](std::int64_t products) { return std::max<std::int64_t>(1, task_work / products); };

  // Where b is small, all of it is opened first and rows of y are written from end to end.
  if (panels * panel_bytes <= block_bytes && tiles > 1) {
    auto* const opened = static_cast<char*>(workspace(static_cast<std::size_t>(panels * panel_bytes), Buffer::opened));
    if (opened == nullptr) return false;
    const std::int64_t opening = std::max<std::int64_t>(1, 32768 / (tile.columns * at.ks));
    parallel_for(parallel, panels, opening, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t panel = begin; panel < end; ++panel) open(panel, opened + panel * panel_bytes);
    });
    parallel_for(parallel, tiles, grain_of(tile.rows * s.n * at.ks), [&](std::int64_t begin, std::int64_t end) {
      if (tile.enter != nullptr) tile.enter();
      for (std::int64_t t = begin; t < end; ++t)
        for (std::int64_t panel = 0; panel < panels; ++panel) multiply(t, panel, opened + panel * panel_bytes);
      if (tile.leave != nullptr) tile.leave();
    });
    return true;
  }

  const std::int64_t block_tiles = std::max<std::int64_t>(1, block_bytes / tile_bytes);
  const std::int64_t blocks = whole(tiles, block_tiles);
  const std::int64_t grain = grain_of(std::min(tiles, block_tiles) * tile.rows * tile.columns * at.ks);
  std::atomic<bool> enough{true};
  parallel_for(parallel, blocks * panels, grain, [&](std::int64_t begin, std::int64_t end) {
    void* const opened = workspace(static_cast<std::size_t>(panel_bytes), Buffer::opened);
    if (opened == nullptr) {
      enough.store(false, std::memory_order_relaxed);
      return;
    }
    if (tile.enter != nullptr) tile.enter();
    for (std::int64_t item = begin; item < end; ++item) {
      const std::int64_t block = item / panels, panel = item % panels;
      open(panel, opened);
      const std::int64_t end_tile = std::min(tiles, (block + 1) * block_tiles);
      for (std::int64_t t = block * block_tiles; t < end_tile; ++t) multiply(t, panel, opened);
    }
    if (tile.leave != nullptr) tile.leave();
  });
  return enough.load();
}

}  // namespace

Status run_mixed_gemm(const MixedTile& tile, const GemmShape& s, const MixedGemmInput& in, float scale, float* y,
                      const Parallel& parallel) {
  if (s.m < 0 || s.n < 0 || s.k < 0) return Status::bad_shape;
  if (in.a_dtype != Dtype::f32 && in.a_dtype != Dtype::bf16) return Status::bad_dtype;
  if (in.b_dtype != Dtype::f32 && in.b_dtype != Dtype::s8) return Status::bad_dtype;
  if (s.m == 0 || s.n == 0) return Status::ok;
  if (s.k == 0) {
    std::memset(y, 0, static_cast<std::size_t>(s.m * s.n) * sizeof(float));
    return Status::ok;
  }
  const std::int64_t section_rows = rows_at_once / tile.rows * tile.rows;
  const std::int64_t rows = whole(std::min(s.m, section_rows), tile.rows) * tile.rows;
  const std::int64_t ks = whole(std::min(s.k, tile.depth), tile.step) * tile.step;
  auto* const arranged = static_cast<char*>(workspace(static_cast<std::size_t>(rows * ks * tile.a_bytes)));
  if (arranged == nullptr) return Status::out_of_memory;
  for (std::int64_t row = 0; row < s.m; row += section_rows)
    for (std::int64_t l = 0; l < s.k; l += tile.depth) {
      const Section section = {row, std::min(section_rows, s.m - row), l, std::min(tile.depth, s.k - l)};
      if (!run_section(tile, s, in, scale, y, section, arranged, parallel)) return Status::out_of_memory;
    }
  return Status::ok;
}

}  // namespace cpu

#if defined(BIE_X86)
/// Fewer rows leave tiles empty, and a short sum is mostly opening and storing.
static bool fills_tiles(const GemmShape& s) { return s.m >= 16 && s.n >= 16 && s.k >= 16; }

template <const cpu::MixedTile& tile, const cpu::MixedTile& tile_of_bf16>
static constexpr MixedGemmKernel kernel_of(const char* name, Isa isa) {
  return {name, isa, fills_tiles,
          [](const GemmShape& shape, const MixedGemmInput& in, float scale, float* y, const Parallel& parallel) {
            return cpu::run_mixed_gemm(in.a_dtype == Dtype::bf16 ? tile_of_bf16 : tile, shape, in, scale, y, parallel);
          }};
}
#endif

Table<MixedGemmKernel> mixed_gemm_table() {
  static const MixedGemmKernel best_first[] = {
#if defined(BIE_X86)
    kernel_of<cpu::amx::mixed_tile, cpu::amx::mixed_tile_of_bf16>("mixed_gemm_amx", Isa::amx),
    kernel_of<cpu::avx512bw::mixed_tile, cpu::avx512bw::mixed_tile_of_bf16>("mixed_gemm_avx512bw", Isa::avx512bw),
#endif
    reference::mixed_gemm,
  };
  return table_of(best_first);
}

}  // namespace bie::kernels
