// The loop of the tiles of this folder: SMMLA multiplies eight codes of two rows with those of two outputs.
#pragma once

#include <arm_neon.h>

#include "kernels/cpu/portable/byte_tile.h"

namespace bie::kernels::cpu::i8mm {
namespace {

constexpr int tile_rows = 6, columns = 16, vectors = columns / 2;

/// P pairs of rows.
template <int P>
[[gnu::always_inline]] inline void tile_of_pairs(const TileArgs& a) {
  int32x4_t sum[P][vectors];
#pragma GCC unroll 4
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) sum[p][v] = vdupq_n_s32(0);
  const auto* panel = static_cast<const std::int8_t*>(a.panel);
  for (std::int64_t t = 0; t < a.taps; ++t) {
    const std::int8_t* row[2 * P];
#pragma GCC unroll 8
    for (int r = 0; r < 2 * P; ++r)
      row[r] = static_cast<const std::int8_t*>(a.rows[r < a.row_count ? r : a.row_count - 1]) + a.tap_offsets[t];
    for (std::int64_t u = 0; u < a.units; ++u, panel += columns * 8) {
      int8x16_t x[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) x[p] = vcombine_s8(vld1_s8(row[2 * p] + 8 * u), vld1_s8(row[2 * p + 1] + 8 * u));
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) {
        const int8x16_t w = vld1q_s8(panel + 16 * v);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) sum[p][v] = vmmlaq_s32(sum[p][v], x[p], w);
      }
    }
  }
  for (int r = 0; r < a.row_count; ++r) {
    std::int32_t* const acc = a.acc + r * columns;
    for (int v = 0; v < vectors; ++v) {
      const int32x4_t both = sum[r / 2][v];
      vst1_s32(acc + 2 * v, vadd_s32(vld1_s32(a.init + 2 * v), r % 2 == 0 ? vget_low_s32(both) : vget_high_s32(both)));
    }
    if (a.signs != nullptr)
      a.signs[r] = neon::signs_of(acc, a.col_count, a.scale, a.bias);
    else if (a.y != nullptr)
      neon::store({acc, a.col_count, a.scale, Dtype::f32, a.y + r * a.y_stride});
  }
}

void some_rows_of(const TileArgs& a) {
  if (a.row_count > 4) return tile_of_pairs<3>(a);
  if (a.row_count > 2) return tile_of_pairs<2>(a);
  tile_of_pairs<1>(a);
}

void run_pairs(const TileArgs& args) { for_tiles<tile_rows, columns>(args, some_rows_of); }

}  // namespace
}  // namespace bie::kernels::cpu::i8mm
