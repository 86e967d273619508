// How a weight-only tile goes through groups and rows, for instruction sets whose loops have one row x 64 outputs in
// registers, or open the codes of a part of a group into memory once for up to 24 rows.
//
// `Loops` is a struct of the unnamed namespace of an instruction set's file, so that what is made of these templates
// belongs to that file alone. Its members, pointers to functions:
//   multiply<R>       sum [R][64] += x [count][stride] times codes [count][64]; R up to tile_rows
//   open_rows<width>  rows of codes, less their middle, into [rows][64]; what a last line holds beyond them may follow
//   add_group<width>  the sums of one row over a group into sum [64]
//   end_group         what a group adds to the outputs
#pragma once

#include <cstdint>

#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu {

struct WeightOnlyRows {
  static constexpr int most = 24, of_tile = 6;
  static constexpr int part = 64;  ///< rows of k that are opened at a time: 16 KiB, and whole lines of every width
};

/// Splits the rows into tiles of nearly equal size: a tile of few rows has too few sums to hide the latency of an
/// addition.
template <class Loops>
void multiply_rows(const float* codes, const float* x, int stride, int count, int rows, float* sums) {
  const int tiles = (rows + WeightOnlyRows::of_tile - 1) / WeightOnlyRows::of_tile;
  for (int t = 0; t < tiles; ++t) {
    const int first = t * rows / tiles;
    float* const to = sums + first * panel_columns;
    switch ((t + 1) * rows / tiles - first) {
      case 1: Loops::template multiply<1>(codes, x + first, stride, count, to); break;
      case 2: Loops::template multiply<2>(codes, x + first, stride, count, to); break;
      case 3: Loops::template multiply<3>(codes, x + first, stride, count, to); break;
      case 4: Loops::template multiply<4>(codes, x + first, stride, count, to); break;
      case 5: Loops::template multiply<5>(codes, x + first, stride, count, to); break;
      default: Loops::template multiply<6>(codes, x + first, stride, count, to); break;
    }
  }
}

template <class Loops>
void open_part(int width, const char* lines, std::int32_t first, int count, float* to) {
  const char* const at = lines + first * width / 8 * 64;
  switch (width) {
    case 1: return Loops::template open_rows<1>(at, count, to);
    case 2: return Loops::template open_rows<2>(at, count, to);
    case 4: return Loops::template open_rows<4>(at, count, to);
    default: return Loops::template open_rows<8>(at, count, to);
  }
}

template <class Loops>
void add_one_row(int width, const char* lines, const float* x, std::int32_t rows, float* sum) {
  switch (width) {
    case 1: return Loops::template add_group<1>(lines, x, rows, sum);
    case 2: return Loops::template add_group<2>(lines, x, rows, sum);
    case 4: return Loops::template add_group<4>(lines, x, rows, sum);
    default: return Loops::template add_group<8>(lines, x, rows, sum);
  }
}

template <class Loops>
void run_weight_only_rows(const WeightOnlyArgs& a) {
  constexpr int part = WeightOnlyRows::part;
  alignas(64) float codes[part * panel_columns], sum[WeightOnlyRows::most * panel_columns];
  for (int i = 0; i < a.rows; ++i)
    for (int j = 0; j < panel_columns; ++j) a.y[i * a.y_stride + j] = 0;
  const std::int64_t numbers = row_bytes(a.scale, panel_columns) + zero_bytes(a.offset, a.scale);
  const float *x = a.x, *sums = a.sums;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g) {
    const WeightGroup& group = a.groups[g];
    const char* const lines = panel + numbers;
    if (a.rows == 1) {
      add_one_row<Loops>(group.width, lines, x, group.rows, sum);
    } else {
      for (int i = 0; i < a.rows * panel_columns; ++i) sum[i] = 0;
      for (std::int32_t first = 0; first < group.rows; first += part) {
        const int count = group.rows - first < part ? group.rows - first : part;
        open_part<Loops>(group.width, lines, first, count, codes);
        multiply_rows<Loops>(codes, x + first * a.rows, a.rows, count, a.rows, sum);
      }
    }
    Loops::end_group(a, group, panel, sums, sum);
    x += a.rows * group.rows;
    if (sums != nullptr) sums += a.rows;
    panel += numbers + 64 * group.lines;
  }
}

}  // namespace bie::kernels::cpu
