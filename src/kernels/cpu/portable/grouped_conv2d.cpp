// Convolutions of few channels or outputs a group: sixteen outputs side by side, each with a code of its own a unit, as
// floats.
#include "kernels/cpu/portable/float_product.h"

namespace bie::kernels::cpu::portable {
namespace {

constexpr int vectors = grouped_lanes / 4, pixels_at_once = many_registers ? 4 : 2;

/// A unit holds one code, as a float.
void spread(const SpreadArgs& a) {
  auto* out = static_cast<char*>(a.out);
  for (std::int64_t p = 0; p < a.pixels; ++p) {
    const char* const pixel = static_cast<const char*>(a.codes) + p * a.pixel_bytes;
    for (std::int64_t u = 0; u < a.units; ++u, out += 4 * grouped_lanes) {
      if (a.lanes == nullptr)
        std::memcpy(out, pixel, 4 * grouped_lanes);
      else
        for (int i = 0; i < grouped_lanes; ++i) std::memcpy(out + 4 * i, pixel + (a.lanes[i] + u) * 4, 4);
    }
  }
}

/// P pixels from `first` on of a row.
template <int P>
void pixels(const GroupedTileArgs& a, int row, std::int64_t first) {
  Floats sum[P][vectors] = {};
  const char* w = static_cast<const char*>(a.panel);
  const void* const* const taps = a.taps + row * a.row_taps;
  for (std::int64_t t = 0; t < a.tap_count; ++t, w += 4 * grouped_lanes) {
    const char* const x = static_cast<const char*>(taps[t]) + first * a.step;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const Floats weights = load<Floats>(w + 16 * v);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sum[p][v] += load<Floats>(x + p * a.step + 16 * v) * weights;
    }
  }
  for (int p = 0; p < P; ++p) {
    const std::int64_t at = row * a.count + first + p;
    std::int32_t* const acc = a.acc + at * grouped_lanes;
    for (int i = 0; i < grouped_lanes; ++i) acc[i] = a.init[i] + static_cast<std::int32_t>(sum[p][i / 4][i % 4]);
    if (a.y != nullptr) store({acc, a.columns, a.scale, Dtype::f32, a.y + at * a.y_stride});
  }
}

void run(const GroupedTileArgs& a) {
  for (int row = 0; row < a.rows; ++row) {
    std::int64_t first = 0;
    for (; first + pixels_at_once <= a.count; first += pixels_at_once) pixels<pixels_at_once>(a, row, first);
    for (; first < a.count; ++first) pixels<1>(a, row, first);
  }
}

constexpr Tile rows(Code code) {
  return {code,    0,       grouped_lanes, 1,       4,       encode, nullptr, nullptr, store,
          nullptr, nullptr, nullptr,       nullptr, nullptr, 0,      false,   tail};
}

}  // namespace

const GroupedTile b1xb1_grouped_tile = {rows(Code::f32_b1), spread, run, Product::max_units};
const GroupedTile s4xs4_grouped_tile = {rows(Code::f32), spread, run, Product::max_units};
const GroupedTile s8xs8_grouped_tile = {rows(Code::f32), spread, run, Product::max_units};

}  // namespace bie::kernels::cpu::portable
