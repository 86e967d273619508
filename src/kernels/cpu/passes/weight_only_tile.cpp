// The tile of weight-only products as plain loops: up to 4 rows x 64 outputs.
#include <cmath>
#include <cstdint>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu {
namespace {

constexpr int most_rows = 4, columns = panel_columns;

/// The codes of row r of a line, less the middle of their width.
void open_row(const std::uint32_t* line, int width, int r, float* codes) {
  const std::uint32_t mask = (1u << width) - 1;
  const std::int32_t middle = 1 << (width - 1);
  for (int v = 0; v < 4; ++v) {
    const int shift = width * (2 * r + v % 2) + 16 * (v / 2);
    float* const to = codes + 16 * v;
    for (int l = 0; l < 16; ++l)
      to[l] = static_cast<float>(static_cast<std::int32_t>(line[l] >> shift & mask) - middle);
  }
}

void widen(const char* from, Dtype dtype, float* to) {
  for (int j = 0; j < columns; ++j) to[j] = load_float(from, dtype, j);
}

/// Adds one group's contribution to the outputs.
void add_group(const WeightOnlyArgs& a, const WeightGroup& group, const float* x, const float* sums,
               const char* numbers, const char* lines) {
  float sum[most_rows][columns] = {}, codes[columns], scale[columns], offset[columns];
  const int per_line = 8 / group.width;
  for (std::int32_t i = 0; i < group.rows; ++i, x += a.rows) {
    open_row(reinterpret_cast<const std::uint32_t*>(lines + i / per_line * 64), group.width, i % per_line, codes);
    for (int r = 0; r < a.rows; ++r)
      for (int j = 0; j < columns; ++j) sum[r][j] = std::fma(x[r], codes[j], sum[r][j]);
  }
  widen(numbers, a.scale, scale);
  const char* const zeros = numbers + row_bytes(a.scale, columns);
  if (a.offset == Offset::value) {
    widen(zeros, a.scale, offset);
    for (int j = 0; j < columns; ++j) offset[j] = std::fma(group.middle, scale[j], -offset[j]);
  } else if (a.offset == Offset::zero) {
    for (int j = 0; j < columns; ++j)
      offset[j] = scale[j] * (group.middle - 1 - static_cast<float>(reinterpret_cast<const std::uint8_t*>(zeros)[j]));
  }
  for (int r = 0; r < a.rows; ++r) {
    float* const y = a.y + r * a.y_stride;
    for (int j = 0; j < columns; ++j) y[j] = std::fma(sum[r][j], scale[j], y[j]);
    if (a.offset == Offset::none) continue;
    for (int j = 0; j < columns; ++j) y[j] = std::fma(sums[r], offset[j], y[j]);
  }
}

void run(const WeightOnlyArgs& a) {
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < columns; ++j) a.y[r * a.y_stride + j] = 0;
  const std::int64_t numbers = row_bytes(a.scale, columns) + zero_bytes(a.offset, a.scale);
  const float *x = a.x, *sums = a.sums;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g) {
    const WeightGroup& group = a.groups[g];
    add_group(a, group, x, sums, panel, panel + numbers);
    x += a.rows * group.rows;
    if (sums != nullptr) sums += a.rows;
    panel += numbers + 64 * group.lines;
  }
}

}  // namespace

const WeightOnlyTile BIE_PASS_SET::weight_only_loops = {most_rows, 1, run};

}  // namespace bie::kernels::cpu
