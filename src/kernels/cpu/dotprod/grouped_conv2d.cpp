// Convolutions of few channels or outputs a group: sixteen outputs side by side, each with four codes of its own a
// unit; SDOT. Codes of 4 bits and signs are bytes that are not negative.
#include <arm_neon.h>

#include "kernels/cpu/portable/passes.h"
#include "kernels/cpu/tile.h"

namespace bie::kernels::cpu::dotprod {
namespace {

constexpr int vectors = grouped_lanes / 4, most_pixels = 6;

const std::int8_t* bytes(const void* at) { return static_cast<const std::int8_t*>(at); }

/// P pixels from `first` on of a row.
template <int P>
void pixels(const GroupedTileArgs& a, int row, std::int64_t first) {
  int32x4_t sum[P][vectors];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sum[p][v] = vld1q_s32(a.init + 4 * v);
  const std::int8_t* w = bytes(a.panel);
  const void* const* const taps = a.taps + row * a.row_taps;
  for (std::int64_t t = 0; t < a.tap_count; ++t, w += 4 * grouped_lanes) {
    const std::int8_t* const x = bytes(taps[t]) + first * a.step;
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      const int8x16_t weights = vld1q_s8(w + 16 * v);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) sum[p][v] = vdotq_s32(sum[p][v], vld1q_s8(x + p * a.step + 16 * v), weights);
    }
  }
  for (int p = 0; p < P; ++p) {
    const std::int64_t at = row * a.count + first + p;
    std::int32_t* const acc = a.acc + at * grouped_lanes;
    for (int v = 0; v < vectors; ++v) vst1q_s32(acc + 4 * v, sum[p][v]);
    if (a.y != nullptr) portable::store({acc, a.columns, a.scale, Dtype::f32, a.y + at * a.y_stride});
  }
}

void run(const GroupedTileArgs& a) {
  for (int row = 0; row < a.rows; ++row) {
    std::int64_t first = 0;
    for (; first + most_pixels <= a.count; first += most_pixels) pixels<most_pixels>(a, row, first);
    for (; first + 2 <= a.count; first += 2) pixels<2>(a, row, first);
    if (first < a.count) pixels<1>(a, row, first);
  }
}

constexpr Tile rows(Code code) {
  return {
      code,    0,       grouped_lanes, 4, 4,     portable::encode, nullptr, nullptr, portable::store, nullptr, nullptr,
      nullptr, nullptr, nullptr,       0, false, portable::tail};
}

}  // namespace

const GroupedTile b1xb1_grouped_tile = {rows(Code::u8_b1), portable::spread, run};
const GroupedTile s4xs4_grouped_tile = {rows(Code::u8_s4), portable::spread, run};
const GroupedTile s8xs8_grouped_tile = {rows(Code::s8), portable::spread, run};

}  // namespace bie::kernels::cpu::dotprod
