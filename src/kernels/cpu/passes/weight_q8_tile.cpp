// The tile of weight-only products with integer activations as plain loops: up to 4 rows x 64 outputs.
#include <cmath>
#include <cstdint>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/weight_panels.h"

namespace bie::kernels::cpu {
namespace {

constexpr int most_rows = 4, columns = panel_columns;

/// Adds the products of one set of lines, whose activations are `u` [8 / width][rows][4].
void add_lines(const std::uint32_t* lines, int width, const std::int8_t* u, int rows,
               std::int32_t (&sum)[most_rows][columns]) {
  const std::uint32_t mask = (1u << width) - 1;
  for (int field = 0; field < 8 / width; ++field, u += 4 * rows)
    for (int b = 0; b < 4; ++b) {
      const int shift = 8 * b + width * field;
      std::int32_t codes[columns];
      for (int j = 0; j < columns; ++j) codes[j] = static_cast<std::int32_t>(lines[j] >> shift & mask);
      for (int r = 0; r < rows; ++r) {
        const std::int32_t by = u[4 * r + b];
        for (int j = 0; j < columns; ++j) sum[r][j] += codes[j] * by;
      }
    }
}

void widen(const char* from, Dtype dtype, float* to) {
  for (int j = 0; j < columns; ++j) to[j] = load_float(from, dtype, j);
}

/// What one group adds to the outputs.
void add_group(const WeightQ8Args& a, const WeightGroup& group, const std::int8_t* u, const std::int32_t* sums,
               const float* steps, const char* numbers, const char* lines) {
  std::int32_t sum[most_rows][columns];
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < columns; ++j) sum[r][j] = sums[r] * -(1 << (group.width - 1));
  for (std::int32_t line = 0; line < group.lines; line += 4, u += 32 / group.width * a.rows)
    add_lines(reinterpret_cast<const std::uint32_t*>(lines) + 16 * line, group.width, u, a.rows, sum);
  float scale[columns], offset[columns];
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
    const float all = static_cast<float>(sums[r]);
    float t[columns];
    for (int j = 0; j < columns; ++j) t[j] = static_cast<float>(sum[r][j]) * scale[j];
    if (a.offset != Offset::none)
      for (int j = 0; j < columns; ++j) t[j] = std::fma(all, offset[j], t[j]);
    for (int j = 0; j < columns; ++j) y[j] = std::fma(steps[r], t[j], y[j]);
  }
}

void run(const WeightQ8Args& a) {
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < columns; ++j) a.y[r * a.y_stride + j] = 0;
  const std::int64_t numbers = row_bytes(a.scale, columns) + zero_bytes(a.offset, a.scale);
  const std::int8_t* u = a.u;
  const std::int32_t* sums = a.sums;
  const float* steps = a.steps;
  const char* panel = a.panel;
  for (std::int64_t g = 0; g < a.group_count; ++g, sums += a.rows, steps += a.rows) {
    const WeightGroup& group = a.groups[g];
    add_group(a, group, u, sums, steps, panel, panel + numbers);
    u += std::int64_t{4} * group.quads() * a.rows;
    panel += numbers + 64 * group.lines;
  }
}

}  // namespace

const WeightQ8Tile BIE_PASS_SET::weight_q8_loops = {most_rows, 1, run};

}  // namespace bie::kernels::cpu
