// The tile of weight-only products with integer activations, and their codes, as plain loops: up to 4 rows x 64
// outputs.
#include <cmath>
#include <cstdint>

#include "kernels/arithmetic/float_bits.h"
#include "kernels/cpu/passes/chunks.h"
#include "kernels/cpu/weight_only/weight_panels.h"

namespace bie::kernels::cpu {
namespace {

constexpr int most_rows = 4, columns = panel_columns;

/// Bits of the greatest magnitude. The bit patterns of magnitudes are ordered as the magnitudes are; NaN ranks above
/// infinity.
std::int32_t largest(const float* x, std::int64_t count) {
  constexpr int lanes = 32;
  std::int32_t most[lanes] = {};
  const auto take = [&](float value, int lane) {
    const auto bits = static_cast<std::int32_t>(bits_from_float(value) & 0x7fffffffu);
    most[lane] = bits > most[lane] ? bits : most[lane];
  };
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int t = 0; t < lanes; ++t) take(x[i + t], t);
  for (int t = 0; i < count; ++i, ++t) take(x[i], t);
  std::int32_t all = 0;
  for (int t = 0; t < lanes; ++t) all = most[t] > all ? most[t] : all;
  return all;
}

/// rint of a product below 2^22: the sum with 1.5 * 2^23 has it in its low bits.
std::int32_t rounded(float x, float r) {
  return static_cast<std::int32_t>(bits_from_float(x * r + 12582912.0f)) - 0x4b400000;
}

float codes(const Q8CodesArgs& args, std::int32_t* sum) {
  const float* const x = args.x;
  const std::int32_t count = args.count, quads = args.quads;
  std::int8_t* u = args.u;
  const std::int32_t most = largest(x, count);
  const std::int64_t stride = std::int64_t{4} * args.rows;
  *sum = 0;
  const float a = float_from_bits(static_cast<std::uint32_t>(most));
  if (most >= 0x7f800000 || a < 0x1p-100f) {
    for (std::int32_t q = 0; q < quads; ++q, u += stride)
      for (int b = 0; b < 4; ++b) u[b] = 0;
    return most >= 0x7f800000 ? float_from_bits(0x7fc00000u) : 0.0f;
  }
  const float r = 127.0f / a;
  std::int32_t all = 0;
  std::int8_t side[chunk];
  for_chunks(0, count, [&](std::int64_t first, std::int64_t n) {
    for (std::int64_t j = 0; j < n; ++j) {
      const std::int32_t code = rounded(x[first + j], r);
      all += code;
      side[j] = static_cast<std::int8_t>(code);
    }
    for (std::int64_t j = n; j < (n + 3) / 4 * 4; ++j) side[j] = 0;
    for (std::int64_t j = 0; j < n; j += 4, u += stride)
      for (int b = 0; b < 4; ++b) u[b] = side[j + b];
  });
  for (std::int64_t q = (std::int64_t{count} + 3) / 4; q < quads; ++q, u += stride)
    for (int b = 0; b < 4; ++b) u[b] = 0;
  *sum = all;
  return a / 127.0f;
}

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

/// Scales of a group, and with Offset::value its zeros.
void open_numbers(const PanelNumbers& numbers, const PanelGroups& at, float* scales, float* zeros) {
  const bool values = numbers.offset == Offset::value;
  if (numbers.groups_of_super == 0) {
    widen(at.numbers(), numbers.scale, scales);
    if (values) widen(at.numbers() + row_bytes(numbers.scale, columns), numbers.scale, zeros);
    return;
  }
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(at.numbers());
  widen(at.super(), Dtype::f16, scales);
  for (int j = 0; j < columns; ++j) scales[j] *= static_cast<float>(bytes[j] - 128);
  if (!values) return;
  widen(at.super() + 2 * columns, Dtype::f16, zeros);
  for (int j = 0; j < columns; ++j) zeros[j] *= static_cast<float>(bytes[columns + j]);
}

/// Adds one group's contribution to the outputs.
void add_group(const WeightOnlyQ8Args& a, const WeightGroup& group, const std::int8_t* u, const std::int32_t* starts,
               const float* sums, const float* steps, const PanelGroups& at) {
  std::int32_t sum[most_rows][columns];
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < columns; ++j) sum[r][j] = a.doubles ? 0 : starts[r];
  for (std::int32_t line = 0; line < group.lines; line += 4, u += 32 / group.width * a.rows)
    add_lines(reinterpret_cast<const std::uint32_t*>(at.lines()) + 16 * line, group.width, u, a.rows, sum);
  if (a.doubles)
    for (int r = 0; r < a.rows; ++r)
      for (int j = 0; j < columns; ++j) sum[r][j] = starts[r] + 2 * sum[r][j];
  float scale[columns], offset[columns];
  open_numbers(a.numbers, at, scale, offset);
  if (a.numbers.offset == Offset::value) {
    for (int j = 0; j < columns; ++j) offset[j] = std::fma(group.middle, scale[j], -offset[j]);
  } else if (a.numbers.offset == Offset::zero) {
    const char* const zeros = at.numbers() + row_bytes(a.numbers.scale, columns);
    for (int j = 0; j < columns; ++j)
      offset[j] = scale[j] * (group.middle - 1 - static_cast<float>(reinterpret_cast<const std::uint8_t*>(zeros)[j]));
  }
  for (int r = 0; r < a.rows; ++r) {
    float* const y = a.y + r * a.y_stride;
    float t[columns];
    for (int j = 0; j < columns; ++j) t[j] = static_cast<float>(sum[r][j]) * scale[j];
    if (a.numbers.offset != Offset::none)
      for (int j = 0; j < columns; ++j) t[j] = std::fma(sums[r], offset[j], t[j]);
    for (int j = 0; j < columns; ++j) y[j] = std::fma(steps[r], t[j], y[j]);
  }
}

void run(const WeightOnlyQ8Args& a) {
  for (int r = 0; r < a.rows; ++r)
    for (int j = 0; j < columns; ++j) a.y[r * a.y_stride + j] = 0;
  const std::int8_t* u = a.u;
  const std::int32_t* starts = a.starts;
  const float *sums = a.sums, *steps = a.steps;
  PanelGroups at(a.panel, a.numbers);
  for (std::int64_t g = 0; g < a.group_count; ++g, starts += a.rows, sums += a.rows, steps += a.rows) {
    const WeightGroup& group = a.groups[g];
    add_group(a, group, u, starts, sums, steps, at);
    u += std::int64_t{4} * group.quads() * a.rows;
    at.pass(group);
  }
}

}  // namespace

const WeightOnlyQ8Tile BIE_PASS_SET::weight_only_q8_loops = {most_rows, 1, codes, run};

}  // namespace bie::kernels::cpu
